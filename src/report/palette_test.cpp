#include "report/palette.h"

#include <gtest/gtest.h>

#include <set>

#include "mixers/mixer.h"

namespace horner {
namespace {

TEST(Palette, EveryMixerHasAColourOfItsOwn) {
  std::set<int> used;
  for (const MixerType& type : mixers()) {
    const int colour = listed_colour(std::string(type.name));
    EXPECT_NE(colour, kGrey) << type.name << " has no slot in palette.cpp";
    EXPECT_LT(colour, kColours);
    used.insert(colour);
  }
  EXPECT_EQ(used.size(), mixers().size()) << "picture.css needs more slots";
}

// docs/results/compare_default.svg is drawn in these.
TEST(Palette, PublishedColoursStay) {
  EXPECT_EQ(
      mixer_colours({"softmax", "taylor", "linear", "gla", "mlstm"}),
      (std::vector<int>{0, 1, 3, 5, 7})
  );
}

TEST(Palette, LabelsOfPapersAreMixers) {
  EXPECT_EQ(listed_colour("GLA"), mixer_colour("gla"));
  EXPECT_EQ(listed_colour("norm attention K=4"), mixer_colour("norm_attention"));
  EXPECT_EQ(listed_colour("linear attention"), mixer_colour("linear"));
  EXPECT_EQ(listed_colour("softmax, trained on"), mixer_colour("softmax"));
  EXPECT_EQ(listed_colour("linearly"), kGrey);
}

TEST(Palette, SettingsAreTintsOfOneColour) {
  const int taylor = mixer_colour("taylor");
  EXPECT_EQ(mixer_colour("taylor:order=4"), taylor);
  EXPECT_EQ(mixer_colour("conv:kind=dense taylor:order=4"), taylor);
  EXPECT_EQ(
      mixer_colours({"taylor:order=2", "gla", "taylor:order=4"}),
      (std::vector<int>{taylor, mixer_colour("gla"), taylor + kColours})
  );
  EXPECT_EQ(colour_class(3 + kColours), "s3 t1");
  EXPECT_EQ(colour_class(kGrey), "grey");
  EXPECT_EQ(mixer_colour("of tomorrow"), mixer_colour("of tomorrow"));
  EXPECT_EQ(listed_colour("order 2"), taylor);
  EXPECT_EQ(listed_colour("chance"), kGrey);
}

}  // namespace
}  // namespace horner
