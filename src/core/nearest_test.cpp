#include "core/nearest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace horner {
namespace {

TEST(Nearest, DistanceCountsASwapAsOne) {
  EXPECT_EQ(edit_distance("order", "order"), 0);
  EXPECT_EQ(edit_distance("ordr", "order"), 1);
  EXPECT_EQ(edit_distance("odrer", "order"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
}

RC_GTEST_PROP(Nearest, DistanceIsSymmetricAndBounded, (std::string a, std::string b)) {
  const int distance = edit_distance(a, b);
  RC_ASSERT(distance == edit_distance(b, a));
  RC_ASSERT(distance <= static_cast<int>(std::max(a.size(), b.size())));
  RC_ASSERT((distance == 0) == (a == b));
}

TEST(Nearest, SaysWhatIsKnown) {
  const std::vector<std::string> known = {"order", "scale", "form"};
  EXPECT_EQ(unknown("key", "ordr", known), "unknown key 'ordr'; did you mean 'order'?");
  EXPECT_EQ(unknown("key", "heads", known), "unknown key 'heads'; known: order, scale, form");
  EXPECT_EQ(unknown("mixer", "x", std::vector<std::string>(40, "long")), "unknown mixer 'x'");
}

}  // namespace
}  // namespace horner
