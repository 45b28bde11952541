#include "core/random.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "core/check.h"

namespace horner {
namespace {

Random content(uint64_t seed, uint64_t index = 0) {
  return {seed, Split::train, Stream::content, index};
}

// Random123's published known answers.
TEST(Random, PhiloxKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(
      philox({kOnes, kOnes, kOnes, kOnes}, ~uint64_t{0}),
      (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd})
  );
  EXPECT_EQ(
      philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1})
  );
}

TEST(Random, WordsAreThoseOfTheBlocksInOrder) {
  Random random(7, Split::test, Stream::noise, (uint64_t{3} << 32) + 5);
  for (uint32_t q = 0; q < 3; ++q) {
    for (uint32_t word : philox({q, 5, 3, 2 * 65536 + 1}, 7)) EXPECT_EQ(random.word(), word);
  }
}

// The example of the mqar task: seed 0, train, index 0, T = 20, P = 3, N = 64, a = 0.01, no noise.
TEST(Random, MakesTheRecallExample) {
  constexpr int64_t kT = 20, kP = 3, kN = 64;
  Random random = content(0);
  const std::vector<int64_t> keys = random.distinct(kN / 2 - 1, kP);
  const std::vector<int64_t> values = random.distinct(kN / 2, kP);
  std::vector<double> weights;
  for (int64_t i = 0; i < (kT - 2 * kP) / 2; ++i) weights.push_back(std::pow(i + 1, 0.01 - 1));
  const std::vector<int64_t> gaps = random.race(weights, kP);
  std::vector<int64_t> tokens(kT);
  for (int64_t j = 0; j < kP; ++j) {
    tokens[2 * j] = tokens[2 * kP + 2 * gaps[j]] = 1 + keys[j];
    tokens[2 * j + 1] = kN / 2 + values[j];
  }
  EXPECT_EQ(gaps, (std::vector<int64_t>{0, 6, 3}));
  const std::vector<int64_t> expected = {13, 51, 28, 63, 24, 44, 13, 0, 0,  0,
                                         0,  0,  24, 0,  0,  0,  0,  0, 28, 0};
  EXPECT_EQ(tokens, expected);
}

RC_GTEST_PROP(Random, DistinctDrawsDiffer, (uint64_t seed)) {
  const int64_t n = *rc::gen::inRange(0, 200);
  const int64_t m = *rc::gen::inRange<int64_t>(0, n + 1);
  const std::vector<int64_t> drawn = content(seed).distinct(n, m);
  RC_ASSERT(std::set<int64_t>(drawn.begin(), drawn.end()).size() == static_cast<size_t>(m));
  for (int64_t x : drawn) RC_ASSERT(x >= 0 && x < n);
}

RC_GTEST_PROP(Random, DistinctIsFisherYates, (uint64_t seed)) {
  const int64_t n = *rc::gen::inRange(1, 50);
  std::vector<int64_t> slots(n);
  std::iota(slots.begin(), slots.end(), 0);
  Random random = content(seed);
  for (int64_t i = 0; i < n; ++i) std::swap(slots[i], slots[i + random.integer(n - i)]);
  RC_ASSERT(content(seed).distinct(n, n) == slots);
}

// Place i is drawn first with probability w_i / sum w.
TEST(Random, RaceFavoursWeight) {
  const std::vector<double> weights = {1, 2, 5};
  std::vector<double> first(3);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) first[content(1, i).race(weights, 2)[0]] += 1.0 / kDraws;
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(first[i], weights[i] / 8, 0.012);  // 3.5 deviations
}

TEST(Random, NormalHasItsMoments) {
  Random random = content(2);
  double mean = 0, square = 0, fourth = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal();
    mean += x / kDraws;
    square += x * x / kDraws;
    fourth += x * x * x * x / kDraws;
  }
  EXPECT_NEAR(mean, 0, 0.01);
  EXPECT_NEAR(square, 1, 0.015);
  EXPECT_NEAR(fourth, 3, 0.1);
}

TEST(Random, NormalIsCosineThenSine) {
  Random random = content(3), again = content(3);
  const double radius = std::sqrt(-2 * std::log(random.uniform()));
  const double angle = 2 * M_PI * random.uniform();
  EXPECT_DOUBLE_EQ(again.normal(), radius * std::cos(angle));
  EXPECT_DOUBLE_EQ(again.normal(), radius * std::sin(angle));
}

TEST(Random, PermutationSortsByItsWords) {
  for (const int64_t n : {0, 1, 1000, 100000}) {  // no bucket, one, several
    const std::vector<int64_t> order = permutation(9, Split::valid, 4, n);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), size_t(n));
    std::pair<uint32_t, int64_t> last = {0, -1};
    for (int64_t i : order) {
      const uint32_t key = philox({4, static_cast<uint32_t>(i), 0, 65536 + 2}, 9)[0];
      EXPECT_LT(last, std::pair(key, i));  // equal words in order of index
      last = {key, i};
    }
  }
  const std::vector<int64_t> order = permutation(9, Split::valid, 4, 1000);
  EXPECT_NE(order, permutation(9, Split::valid, 5, 1000));
}

TEST(Random, RefusesWhatCannotBeDrawn) {
  EXPECT_THROW(content(0).integer(0), UsageError);
  EXPECT_THROW(content(0).distinct(3, 4), UsageError);
  EXPECT_THROW(content(0).race({1.0}, 2), UsageError);
}

}  // namespace
}  // namespace horner
