#include "lab/theory/trained.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/interrupt.h"

namespace horner::theory {
namespace {

// Untrained, the prediction is small: the error is E y^2 = tr(Sigma)/d + noise = 1.1. Ridge with L = 200 prompts is near the
// noise: 0.1 (1 + d/L) = 0.1025.
TEST(Trained, ErrorsThatAreKnown) {
  const TrainedRisks r = train_and_test({.L = 200, .steps = 0, .runs = 3});
  ASSERT_EQ(r.softmax.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(r.softmax[i], 1.1, 0.12);
    EXPECT_NEAR(r.linear[i], 1.1, 0.12);
    EXPECT_NEAR(r.ridge[i], 0.1025, 0.01);
  }
}

// Both kinds learn, from the same start, and the same call gives the same numbers.
TEST(Trained, LearnsAndIsReproducible) {
  const TrainedOptions o{.L = 20, .steps = 300, .runs = 2, .seed = 3};
  const TrainedRisks before = train_and_test({.L = 20, .steps = 0, .runs = 2, .seed = 3});
  const TrainedRisks r = train_and_test(o);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_LE(r.softmax[i], before.softmax[i] + 1e-3);
    EXPECT_LE(r.linear[i], before.linear[i] + 1e-3);
    EXPECT_GT(r.softmax[i], r.ridge[i]);
  }
  EXPECT_EQ(train_and_test(o).softmax, r.softmax);
}

TEST(Trained, StopsAtATimeLimit) {
  const TimeLimit limit(1e-9);
  EXPECT_THROW(train_and_test({.L = 20, .steps = 300}), InterruptedError);
}

}  // namespace
}  // namespace horner::theory
