#include "lab/reproduce/masking.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace horner {
namespace {

std::shared_ptr<Model> model_of(const std::string& mixer) {
  ModelOptions o;
  o.pattern = {mixer};
  o.layers = 2;
  o.D = 16;
  o.features = 4;
  o.classes = 3;
  o.positions = 16;
  return make_model(o, 0);
}

const char* const kMixers[] = {
    "softmax:bias=true,causal=false,position.kind=none",
    "linear:bias=true,causal=false,feature=relu",
    "inline:residual=0,causal=false"};

TEST(Masking, WithoutAMaskItIsTheModel) {
  const at::Tensor x = at::randn({3, 16, 4});
  for (const char* mixer : kMixers) {
    const auto model = model_of(mixer);
    model->eval();
    const c10::NoGradGuard no_graph;
    ModelState state;
    const at::Tensor own = model->forward(x, state);
    const at::Tensor same = masked_forward(*model, x, masked_tokens({}, 4, 0));
    EXPECT_TRUE(at::allclose(same, own, 1e-4, 1e-5)) << mixer;
    const at::Tensor other = masked_forward(*model, x, masked_tokens({3, true}, 4, 0));
    EXPECT_FALSE(at::allclose(other, own, 1e-4, 1e-5)) << mixer;
    ModelState again;
    EXPECT_TRUE(at::equal(model->forward(x, again), own)) << mixer;  // it is as it was
  }
}

// If all tokens read token 5 alone, tokens 9 and 10 do not meet: changes of both add up.
TEST(Masking, AMaskedTokenIsNotRead) {
  at::Tensor only = at::ones({16, 16});
  only.select(1, 5).zero_();
  const at::Tensor x = at::randn({1, 16, 4});
  const auto moved = [&](std::vector<int64_t> tokens) {
    at::Tensor y = x.clone();
    for (const int64_t t : tokens) y.select(1, t).add_(2);
    return y;
  };
  for (const char* mixer : kMixers) {
    const auto model = model_of(mixer);
    const auto together = [&](const at::Tensor& masked) {
      const auto read = [&](const at::Tensor& y) { return masked_forward(*model, y, masked); };
      return (read(moved({9, 10})) - read(moved({9})) - read(moved({10})) + read(x))
          .abs()
          .max()
          .item<double>();
    };
    EXPECT_LT(together(only), 1e-6) << mixer;
    EXPECT_GT(together(at::zeros({16, 16})), 1e-6) << mixer;
  }
}

TEST(Masking, SquaresAndAsManyAtRandom) {
  const at::Tensor local = masked_tokens({3, true}, 8, 0), random = masked_tokens({3, false}, 8, 0);
  EXPECT_EQ(local[9].sum().item<int>(), 9);  // row 1, column 1: 0 .. 2 of rows 0 .. 2
  for (const int s : {0, 1, 2, 8, 9, 10, 16, 17, 18}) EXPECT_EQ(local[9][s].item<int>(), 1);
  EXPECT_EQ(local[0].sum().item<int>(), 4);  // a corner
  EXPECT_TRUE(at::equal(random.sum(-1), local.sum(-1)));
  EXPECT_FALSE(at::equal(random, local));
}

// Equal weights, by zero queries: the share of the square, 9 of 16 inside, 6 at an edge, 4 in a corner.
TEST(Masking, LocalShareOfEqualWeights) {
  const auto model = model_of(kMixers[0]);
  {
    const c10::NoGradGuard no_graph;
    for (auto& p : model->named_parameters()) {
      if (p.key().find("q_weight") != std::string::npos ||
          p.key().find("q_bias") != std::string::npos)
        p.value().zero_();
    }
  }
  const double equal = (4 * 9 + 8 * 6 + 4 * 4) / 16.0 / 16.0;
  EXPECT_NEAR(local_share(*model, at::randn({2, 16, 4})), equal, 1e-6);
}

}  // namespace
}  // namespace horner
