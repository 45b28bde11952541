// Softmax over many tokens as an integral against their distribution (arXiv:2512.11784): one query
// a, tokens y_1 .. y_L that are keys and values at once.
//
//   Gaussian tokens N(m, Gamma):   o -> m + a Gamma,   L E|o - limit|^2 -> e^{a Gamma a^T} (tr Gamma + |a Gamma|^2)
#include <torch/csrc/autograd/autograd.h>

#include "mixers/papers/worked.h"

namespace horner::worked {
namespace {

// tokens (B,L,d), a (d): the query of the last token, which reads all of them.
at::Tensor softmax_mean(const at::Tensor& a, const at::Tensor& tokens) {
  const int64_t B = tokens.size(0), L = tokens.size(1);
  const at::Tensor past = tokens.narrow(1, 0, L - 1).unsqueeze(1);  // (B,1,L-1,d)
  Inputs in;
  in.k = tokens.narrow(1, L - 1, 1).unsqueeze(2);  // (B,1,1,d)
  in.v = in.k;
  in.q = a.expand_as(in.k);
  Options options;
  options.scale = 1;
  const State seen{{past, past, at::full({B, 1}, L - 1, at::kLong)}};
  return run(find_op("attention"), in, seen, options).o.flatten(1);  // (B,d)
}

TEST(Measure, GaussianTokens) {
  at::manual_seed(4);
  const at::Tensor m = vec({1, -1}), Gamma = rows({2, .5, .5, 1}), a = vec({.5, -.4});
  const at::Tensor root = at::linalg_cholesky(Gamma), limit = vec({1.8, -1.15});
  EXPECT_LT(furthest(m + at::matmul(a, Gamma), limit), 1e-15);
  const auto errors = [&](int64_t prompts, int64_t L) {  // |o - limit|^2, (prompts)
    const at::Tensor y = m + at::matmul(at::randn({prompts, L, 2}, at::kDouble), root.t());
    return (softmax_mean(a, y) - limit).square().sum(-1);
  };
  EXPECT_LT(errors(1, 65536).sqrt().item<double>(), 4 * std::sqrt(5.8017 / 65536));
  EXPECT_NEAR(errors(1000, 2048).mean().item<double>() * 2048, 5.802, 0.6);
}

TEST(Measure, TwoPoints) {  // y = +-1, a = 2: tanh 2
  at::manual_seed(4);
  const at::Tensor y = at::randint(0, 2, {1, 65536, 1}, at::kDouble) * 2 - 1;
  EXPECT_NEAR(softmax_mean(vec({2}), y).item<double>(), 0.9640276, 0.02);
}

// The derivative by the query is the covariance of the tokens under the weights, for any prompt.
TEST(Measure, DerivativeIsTheCovariance) {
  const at::Tensor y = at::randn({1, 20, 3}, at::kDouble);
  const at::Tensor a = at::randn({3}, at::kDouble).requires_grad_(true);
  const at::Tensor o = softmax_mean(a, y).squeeze(0);
  const at::Tensor tokens = y.squeeze(0), p = at::matmul(tokens, a.detach()).softmax(0);
  const at::Tensor centred = tokens - at::matmul(p, tokens);
  const at::Tensor covariance = at::matmul(centred.t(), p.unsqueeze(1) * centred);
  for (int64_t j = 0; j < 3; ++j) {
    const at::Tensor row = torch::autograd::grad({o[j]}, {a}, {}, true)[0];
    EXPECT_LT(furthest(row, covariance[j]), 1e-12);
  }
}

}  // namespace
}  // namespace horner::worked
