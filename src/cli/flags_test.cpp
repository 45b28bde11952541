#include "cli/flags.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace horner {
namespace {

struct Inner {
  int64_t order = 2;
  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("order", order, "highest power");
  }
};

struct Example {
  bool causal = true;
  std::optional<double> scale;
  std::vector<double> coefficients;
  std::string form = "auto";
  Inner mixer;
  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("causal", causal, "only the past is read");
    visit("scale", scale, "of q.k");
    visit("coefficients", coefficients, "of the series");
    visit("form", form, "how it is computed", {"auto", "recurrent"});
    visit("mixer", mixer, "the mixer");
  }
};

Example parse(const std::string& arguments) {
  CLI::App app;
  Example example;
  app.add_option_function<std::string>("--config", [&](const std::string& toml) {
    from_toml(example, toml, "config");
  });
  add_flags(app, example);
  app.parse(arguments);
  return example;
}

TEST(Flags, SetTheirFields) {
  EXPECT_EQ(to_line(changed(parse(""))), "{}");
  EXPECT_EQ(
      to_line(changed(parse("--scale -0.5 --coefficients 1,-0.5 --form=recurrent --mixer.order 4"))
      ),
      R"({"scale":-0.5,"coefficients":[1.0,-0.5],"form":"recurrent","mixer":{"order":4}})"
  );
}

TEST(Flags, ListsMayBeRepeated) {
  const std::vector<double> both = {1, -0.5};
  EXPECT_EQ(parse("--coefficients 1,-0.5").coefficients, both);
  EXPECT_EQ(parse("--coefficients [1,-0.5]").coefficients, both);
  EXPECT_EQ(parse("--coefficients 1 --coefficients -0.5").coefficients, both);
}

TEST(Flags, BooleansHaveAnOpposite) {
  EXPECT_FALSE(parse("--no-causal").causal);
  EXPECT_FALSE(parse("--causal=false").causal);
  EXPECT_TRUE(parse("--no-causal --causal").causal);
  EXPECT_FALSE(parse("--causal --no-causal").causal);
}

TEST(Flags, WinOverWhatIsDeclaredBefore) {
  EXPECT_EQ(parse("--mixer.order 4 --config mixer.order=3").mixer.order, 4);
  EXPECT_EQ(parse("--config mixer.order=3").mixer.order, 3);
  EXPECT_EQ(parse("--mixer.order 4 --mixer.order 5").mixer.order, 5);
}

TEST(Flags, MistakesNameTheKey) {
  try {
    parse("--mixer.order four");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "mixer.order must be an integer, got \"four\"");
  }
  EXPECT_THROW(parse("--ordr 4"), CLI::ExtrasError);
}

TEST(Flags, HelpShowsTypeDefaultAndChoices) {
  CLI::App app;
  Example example;
  add_flags(app, example);
  const std::string help = app.help();
  for (const char* part :
       {"--causal,--no-causal", "--mixer.order integer=2", "--form {auto|recurrent}=auto"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << "\n" << help;
  }
}

}  // namespace
}  // namespace horner
