#include "report/palette.h"

#include <gtest/gtest.h>

#include <set>

#include "mixers/mixer.h"

namespace horner {
namespace {

TEST(Palette, EveryMixerHasAColourOfItsOwn) {
  std::set<int> used;
  for (const MixerType& type : mixers()) used.insert(mixer_colour(std::string(type.name)));
  EXPECT_EQ(used.size(), mixers().size()) << "picture.css needs more slots";
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
  EXPECT_EQ(listed_colour("order 2"), kGrey);
}

}  // namespace
}  // namespace horner
