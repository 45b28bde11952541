// Printed tables, closed forms and brute force.
#include "lab/exact.h"

#include <gtest/gtest.h>

#include <cmath>

namespace horner {
namespace {

// The ends of 0 and of n have closed forms; 3 of 12 and 7 of 10 from scipy.stats.binomtest.
TEST(Exact, ClopperPearson) {
  EXPECT_NEAR(clopper_pearson({0, 8}, .05).high, 1 - std::pow(.025, 1 / 8.0), 1e-9);
  EXPECT_NEAR(clopper_pearson({8, 8}, .05).low, std::pow(.025, 1 / 8.0), 1e-9);
  EXPECT_EQ(clopper_pearson({0, 8}, .05).low, 0);
  EXPECT_EQ(clopper_pearson({8, 8}, .05).high, 1);
  EXPECT_NEAR(clopper_pearson({7, 10}, .05).low, 0.34754, 1e-5);
  EXPECT_NEAR(clopper_pearson({7, 10}, .05).high, 0.93326, 1e-5);
}

// All against none: the sum is p^n (1-p)^n, largest at p = 1/2.
TEST(Exact, SharesOfTwoArms) {
  EXPECT_NEAR(share_p({4, 4}, {0, 4}), std::pow(.25, 4), 1e-12);
  EXPECT_GT(share_p({3, 6}, {3, 6}), .5);
  EXPECT_LT(share_p({12, 12}, {6, 12}), .01);
  EXPECT_GT(share_p({6, 12}, {12, 12}), .99);
  // A difference that was seen is likely; one far smaller is not.
  EXPECT_GT(share_p({12, 12}, {6, 12}, .5), .3);
  const Range same = share_difference({12, 12}, {12, 12}, .05);
  EXPECT_NEAR(same.low, -same.high, 1e-3);
  EXPECT_GT(same.low, -.3);
  EXPECT_LT(same.low, -.2);
  const Range other = share_difference({12, 12}, {3, 12}, .05);
  EXPECT_GT(other.low, .35);
  EXPECT_GT(other.high, .9);
}

// The level is kept for every common share: the sum over all outcomes that are rejected.
TEST(Exact, SharesKeepTheLevel) {
  const int64_t n = 6;
  const auto binomial = [&](int64_t k, double p) {
    return std::tgamma(n + 1) / std::tgamma(k + 1) / std::tgamma(n - k + 1) * std::pow(p, k) *
           std::pow(1 - p, n - k);
  };
  for (const double p : {.1, .37, .5, .8}) {
    double wrong = 0;
    for (int64_t x = 0; x <= n; ++x) {
      for (int64_t y = 0; y <= n; ++y)
        wrong += share_p({x, n}, {y, n}) <= .025 ? binomial(x, p) * binomial(y, p) : 0;
    }
    EXPECT_LE(wrong, .0251) << p;
  }
}

// Three seeds against three without ties: the best of C(6,3) = 20 assignments.
TEST(Exact, LogRank) {
  const std::vector<Reached> early = {{1, true}, {2, true}, {3, true}};
  const std::vector<Reached> late = {{9, false}, {9, false}, {9, false}};
  EXPECT_DOUBLE_EQ(log_rank_p(early, late), 1 / 20.0);
  EXPECT_DOUBLE_EQ(log_rank_p(late, early), 1);
  EXPECT_DOUBLE_EQ(log_rank_p(late, late), 1);  // nobody solved: nothing is known
  std::vector<Reached> many(12, {100, true}), none(12, {500, false});
  EXPECT_LT(log_rank_p(many, none), 1e-3);  // by draws
  EXPECT_EQ(median_step(early), 2);
  EXPECT_TRUE(std::isinf(median_step(late)));
}

// Pocock 1977, two-sided .05: nominal levels of 2 to 5 equal groups.
TEST(Exact, PocockLevels) {
  EXPECT_DOUBLE_EQ(pocock_level({5}, .05), .05);
  EXPECT_NEAR(pocock_level({1, 2}, .05), .0294, 1e-4);
  EXPECT_NEAR(pocock_level({2, 4, 6}, .05), .0221, 1e-4);
  EXPECT_NEAR(pocock_level({1, 2, 3, 4, 5}, .05), .0158, 1e-4);
  EXPECT_GT(pocock_level({4, 6, 8, 10, 12}, .05), .0158);  // looks that share more data
  EXPECT_NEAR(pocock_level({1, 2}, .1), .0606, 2e-4);
}

}  // namespace
}  // namespace horner
