#include "engine/drawn_tokens.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/sampling.h"

namespace horner {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kEver = std::numeric_limits<float>::infinity();

int32_t drawn(std::vector<float> logits, double temperature, double u) {
  return drawn_token(at::tensor(logits).unsqueeze(0), {temperature, u});
}

TEST(DrawnTokens, AreThoseOfTheSampler) {
  constexpr int64_t kRows = 64, kTokens = 5000;
  at::manual_seed(1);
  const at::Tensor logits = at::randn({kRows, kTokens}).mul_(4);
  for (const double temperature : {0.05, 0.8, 1., 100.}) {
    at::Tensor draws = at::full({kRows, 2}, temperature, at::kDouble);
    for (int64_t i = 0; i < kRows; ++i) draws[i][1] = sampling_uniform(uint64_t(i), 7);
    const at::Tensor tokens = drawn_tokens(logits, draws);
    for (int64_t i = 0; i < kRows; ++i) {
      TokenSampler sampler({.temperature = temperature, .seed = i});
      const std::vector<int32_t> before(7, 0);
      const float* row = logits[i].const_data_ptr<float>();
      EXPECT_EQ(tokens[i].item<int32_t>(), sampler.sample({row, kTokens}, before).token) << i;
    }
  }
}

TEST(DrawnTokens, NeverAreImpossible) {
  for (const double u : {0., 0.3, 0.999, 1 - 0x1p-53}) {
    EXPECT_EQ(drawn({kNever, 1, kNever}, 1, u), 1);
    EXPECT_EQ(drawn({0, kEver, 3}, 1, u), 1);
    EXPECT_EQ(drawn({0, 50, 3}, 1e-300, u), 1);
    EXPECT_EQ(drawn({7, 7, kNever}, 1, u), u < 0.5 ? 0 : 1);
    EXPECT_EQ(drawn({kNever, 2, 2, 1}, 0, u), 1);  // the likeliest, of equals the first
    for (const double temperature : {0., 1.}) {
      EXPECT_EQ(drawn({kNever, kNever}, temperature, u), -1);
      EXPECT_EQ(drawn({0, std::nanf(""), 1}, temperature, u), -1);
    }
  }
}

}  // namespace
}  // namespace horner
