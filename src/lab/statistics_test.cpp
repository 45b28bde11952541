#include "lab/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"
#include "core/random.h"
#include "core/thrown_test.h"

namespace horner {
namespace {

// Two and more degrees from printed tables; one and two have closed forms, tan and an algebraic one.
TEST(Statistics, StudentQuantiles) {
  EXPECT_NEAR(student_quantile(.975, 1), std::tan(M_PI * .475), 1e-9);
  for (const double p : {.6, .9, .975, .9995}) {
    const double a = 2 * p - 1;
    EXPECT_NEAR(student_quantile(p, 2), a * std::sqrt(2 / (1 - a * a)), 1e-9) << p;
  }
  EXPECT_NEAR(student_quantile(.975, 4), 2.776445105, 1e-8);
  EXPECT_NEAR(student_quantile(.95, 10), 1.812461123, 1e-8);
  EXPECT_NEAR(student_quantile(.975, 1e6), 1.959966, 1e-5);
  EXPECT_EQ(student_quantile(.5, 3), 0);
  EXPECT_NEAR(student_quantile(.025, 4), -student_quantile(.975, 4), 1e-12);
}

TEST(Statistics, IncompleteBeta) {
  EXPECT_NEAR(incomplete_beta(1, 3, .2), 1 - std::pow(.8, 3), 1e-14);
  EXPECT_NEAR(incomplete_beta(2, 2, .3), .3 * .3 * (3 - 2 * .3), 1e-14);
  EXPECT_NEAR(incomplete_beta(.5, .5, .9), 2 / M_PI * std::asin(std::sqrt(.9)), 1e-13);
}

TEST(Statistics, Interval) {
  const Interval i = t_interval({1, 2, 3});
  EXPECT_DOUBLE_EQ(i.mean, 2);
  EXPECT_NEAR(i.half, 4.302652730 / std::sqrt(3.0), 1e-8);
  EXPECT_TRUE(i.holds(0));
  EXPECT_TRUE(std::isnan(t_interval({1}).half));
  EXPECT_FALSE(t_interval({1}).holds(1));
}

// Of a mean of n numbers the bootstrap's spread is deviation / sqrt(n).
TEST(Statistics, Bootstrap) {
  Random random(5, Split::train, Stream::content, 0);
  std::vector<double> a, b;
  for (int i = 0; i < 400; ++i) {
    const double level = random.normal();
    a.push_back(level + 0.3 + 0.5 * random.normal());
    b.push_back(level);  // pairs: the level cancels
  }
  const Bootstrap once = paired_bootstrap(a, b, 4000, 1), again = paired_bootstrap(a, b, 4000, 1);
  EXPECT_EQ(once.low, again.low);
  EXPECT_NEAR(once.mean, 0.3, 0.08);
  EXPECT_NEAR(once.high - once.low, 2 * 1.96 * 0.5 / 20, 0.012);
  EXPECT_EQ(
      thrown<UsageError>([] {
        paired_bootstrap({1}, {1, 2});
      }),
      "a paired bootstrap takes as many of both, got 1 and 2"
  );
}

TEST(Statistics, Median) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

}  // namespace
}  // namespace horner
