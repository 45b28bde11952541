#include "core/spec.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/thrown_test.h"

namespace horner {
namespace {

TEST(Spec, ReadsWhatItPrints) {
  for (const char* text :
       {"gla", "gla:heads=8", "taylor:order=4,position.kind=none", "text:files=[a.txt,b.txt],T=8"})
    EXPECT_EQ(TypeSpec::parse(text).text(), text);
  const TypeSpec spec = TypeSpec::parse("text:files=[a.txt,b.txt],T=8");
  EXPECT_EQ(spec.name, "text");
  EXPECT_EQ(
      spec.settings, (std::vector<TypeSpec::Setting>{{"files", "[a.txt,b.txt]"}, {"T", "8"}})
  );
  EXPECT_EQ(TypeSpec::parse("gla:").text(), "gla");
}

TEST(Spec, FindsASettingByItsWholeName) {
  const TypeSpec spec = TypeSpec::parse("gated_deltanet:value_heads=4,conv=2,conv=3");
  EXPECT_FALSE(spec.find("heads"));
  EXPECT_EQ(spec.find("value_heads"), "4");
  EXPECT_EQ(spec.find("conv"), "3");  // the last one counts, as where settings are set
}

TEST(Spec, RefusesASettingWithoutAValue) {
  EXPECT_EQ(
      thrown<UsageError>([] { TypeSpec::parse("gla:heads"); }),
      "a setting must be name=value, got 'heads'"
  );
}

TEST(Spec, PutsACutListTogether) {
  using List = std::vector<std::string>;
  EXPECT_EQ(
      whole_specs({"gla:heads=2", "conv=4", "softmax", "order=2", "text:files=[a", "b]", "T=8"}),
      (List{"gla:heads=2,conv=4", "softmax:order=2", "text:files=[a,b],T=8"})
  );
  EXPECT_EQ(whole_specs({"window:window=64", "mlstm"}), (List{"window:window=64", "mlstm"}));
}

}  // namespace
}  // namespace horner
