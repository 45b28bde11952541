#include "lab/explain/heads.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "mixers/mixer.h"

namespace horner {
namespace {

HeadMeasures measured(
    const HeadScores& scores, const Sight& sight, std::vector<int64_t> tokens = {}
) {
  if (tokens.empty()) {
    tokens.resize(size_t(scores.x.size(0)));
    std::iota(tokens.begin(), tokens.end(), 0);
  }
  HeadSums sums(sight);
  sums.add(scores, tokens);
  return sums.measures();
}

HeadScores scores(const at::Tensor& x) {
  return {x.to(at::kFloat).contiguous(), at::zeros({x.size(0)})};
}

// Large at s = t - back, else 0.
HeadScores reader(int64_t T, int64_t back) {
  at::Tensor x = at::zeros({T, T});
  x.diagonal(-back).fill_(100);
  return scores(x);
}

TEST(Heads, UniformAttentionHasClosedForms) {
  constexpr int64_t T = 40;
  const HeadMeasures h = measured(scores(at::zeros({T, T})), {.window = 8, .sinks = 2});
  double distance = 0, entropy = 0, previous = 0, inside = 0, first = 0, last_four = 0;
  for (int64_t t = 0; t < T; ++t) {
    const double n = double(t + 1);
    distance += double(t) / 2 / T;
    entropy += std::log(n) / T;
    previous += (t > 0 ? 1 / n : 0) / T;
    inside += std::min(1.0, 10 / n) / T;
    first += std::min(1.0, 2 / n) / T;
    last_four += std::min(1.0, 4 / n) / T;
  }
  EXPECT_NEAR(h.distance, distance, 1e-9);
  EXPECT_NEAR(h.entropy, entropy, 1e-9);
  EXPECT_NEAR(h.previous, previous, 1e-9);
  EXPECT_NEAR(h.inside, inside, 1e-9);
  EXPECT_NEAR(h.first, first, 1e-9);
  ASSERT_EQ(h.reach.size(), 7u);  // 1, 2, 4, .., 64
  EXPECT_NEAR(h.reach[2], last_four, 1e-9);
  EXPECT_NEAR(h.reach[6], 1, 1e-9);
  EXPECT_NEAR(h.series[0], 0, 1e-12);
  EXPECT_EQ(HeadMeasures::sufficient(h.series), 0);
  EXPECT_TRUE(std::isnan(h.repeats));  // no token occurs twice
}

TEST(Heads, AReaderOfThePreviousTokenIsOneTokenAway) {
  constexpr int64_t T = 33;
  const HeadMeasures h = measured(reader(T, 1), {.window = 2, .sinks = 0});
  EXPECT_NEAR(h.distance, double(T - 1) / T, 1e-9);  // the first token has none before it
  EXPECT_NEAR(h.previous, double(T - 1) / T, 1e-9);
  EXPECT_NEAR(h.entropy, 0, 1e-9);
  EXPECT_NEAR(h.inside, 1, 1e-9);
  EXPECT_EQ(HeadMeasures::sufficient(h.series), 2);  // 1 + 100 + 100^2 / 2 outweighs 32 ones
}

TEST(Heads, AReaderAfterCopiesContinuesRepetitions) {
  const std::vector<int64_t> tokens = {5, 6, 7, 5, 6, 7, 5, 6, 7};
  EXPECT_NEAR(measured(reader(9, 2), {}, tokens).repeats, 1, 1e-9);
  EXPECT_NEAR(measured(reader(9, 1), {}, tokens).repeats, 0, 1e-9);
}

TEST(Heads, TheSeriesOfTwoKeysHasAClosedForm) {
  const double a = 1.5;
  const HeadMeasures h = measured(scores(at::tensor({0.0, 0.0, 0.0, a}).view({2, 2})), {});
  const double w = std::exp(a) / (1 + std::exp(a));
  double p = 0, term = 1;
  for (size_t n = 0; n <= 8; ++n) {
    p += term;
    term *= a / double(n + 1);
    if (n % 2 == 0) EXPECT_NEAR(h.series[n / 2], std::abs(w - p / (1 + p)) / 2, 1e-9) << n;
  }
}

TEST(Heads, CentringChangesTheSeriesAlone) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({24, 24});
  HeadScores moved = scores(x + 7);
  moved.shift = at::full({24}, 7.0f);
  const HeadMeasures plain = measured(scores(x), {}), h = measured(moved, {});
  EXPECT_NEAR(h.entropy, plain.entropy, 1e-5);
  EXPECT_NEAR(h.centred_spread, plain.spread, 1e-5);
  EXPECT_GT(h.spread, 7);
  for (size_t i = 0; i < h.series.size(); ++i)
    EXPECT_NEAR(h.centred_series[i], plain.series[i], 1e-5) << i;
  EXPECT_GT(*HeadMeasures::sufficient(h.series), *HeadMeasures::sufficient(h.centred_series));
}

// Of mixers with fewer key/value heads, and with a window: the map that the mixer itself gives.
TEST(Heads, WeightsAreTheMapOfTheMixer) {
  const c10::NoGradGuard no_graph;
  for (const char* name :
       {"softmax:heads=4,groups=2",
        "window:heads=4,groups=1,window=5,sinks=2",
        "softmax:decay=softplus"}) {
    at::manual_seed(2);
    const auto mixer = make_mixer(MixerSpec::parse(name), 32);
    const at::Tensor x = 3 * at::randn({2, 20, 32});
    const Core core = mixer->core(x);
    const at::Tensor map = mixer->map(x), m = core.in.k.flatten(0, 1).mean(0);
    const at::Tensor back = at::arange(20).view({20, 1}) - at::arange(20);
    for (int64_t h = 0; h < 4; ++h) {
      const HeadScores s = scores_of(core, 1, h, m);
      const at::Tensor w = weights_of(s);
      EXPECT_LT((w - map[1][h]).abs().max().item<double>(), 1e-5) << name;
      EXPECT_NEAR(measured(s, {}).distance, (w * back).sum(1).mean().item<double>(), 1e-4) << name;
    }
  }
}

}  // namespace
}  // namespace horner
