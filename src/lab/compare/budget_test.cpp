#include "lab/compare/budget.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace horner {
namespace {

double parameters(const std::string& mixer, int64_t D) {
  ModelOptions o;
  o.pattern = {mixer};
  o.layers = 1;
  o.D = D;
  o.mlp = "none";
  return double(Model(o).parameters_count());
}

double bytes(const std::string& mixer, int64_t D) {
  ModelOptions o;
  o.pattern = {mixer};
  o.layers = 1;
  o.D = D;
  return double(state_bytes(o, 24));
}

TEST(Budget, NothingToDo) {
  const Budget b = solve_budget("softmax", 32, parameters("softmax", 32), parameters);
  EXPECT_EQ(b.mixer, "softmax");
  EXPECT_EQ(b.D, 32);
  EXPECT_EQ(b.mismatch(), 0);
}

TEST(Budget, Parameters) {
  const Budget b = solve_budget("gla", 32, parameters("softmax", 32), parameters);
  EXPECT_LT(std::abs(b.mismatch()), 0.05);
  EXPECT_EQ(b.cost, parameters(b.mixer, b.D));
}

// The cache of 24 tokens has 2 24 D numbers, linear attention D (D / heads + 1): met by D = 40, one head.
TEST(Budget, State) {
  const Budget b = solve_budget("linear", 32, bytes("softmax", 32), bytes);
  EXPECT_LT(std::abs(b.mismatch()), 0.1);
  EXPECT_NE(b.mixer, "linear");
  EXPECT_EQ(b.cost, bytes(b.mixer, b.D));
}

TEST(Budget, KeepsWhatWasGiven) {
  const Budget b = solve_budget("taylor:order=2,heads=2", 16, bytes("softmax", 16), bytes);
  EXPECT_EQ(b.mixer, "taylor:order=2,heads=2");
}

TEST(Budget, RefusesWhatHasNoCost) { EXPECT_THROW(solve_budget("gla", 32, 0, bytes), UsageError); }

}  // namespace
}  // namespace horner
