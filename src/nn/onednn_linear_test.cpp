#include "nn/onednn_linear.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace horner {
namespace {

// Value and gradients against fp64, with and without a bias, for rows in one and in two dimensions.
TEST(OnednnLinear, IsAProduct) {
  at::manual_seed(0);
  const at::Tensor weight = at::randn({40, 24}).requires_grad_(true);
  if (!has_onednn_linear(at::zeros({512, 24}), weight)) GTEST_SKIP() << "no oneDNN";
  for (const bool bias : {false, true}) {
    for (const std::vector<int64_t>& rows : {std::vector<int64_t>{300}, {5, 77}}) {
      std::vector<int64_t> sizes = rows;
      sizes.push_back(24);
      const at::Tensor x = at::randn(sizes).requires_grad_(true);
      sizes.back() = 40;
      const at::Tensor dy = at::randn(sizes);
      std::vector<at::Tensor> in = {x, weight}, in64;
      if (bias) in.push_back(at::randn({40}).requires_grad_(true));
      for (const at::Tensor& t : in)
        in64.push_back(t.detach().to(at::kDouble).requires_grad_(true));
      const at::Tensor y = onednn_linear(x, weight, bias ? in[2] : at::Tensor());
      const at::Tensor y64 =
          at::linear(in64[0], in64[1], bias ? std::optional<at::Tensor>(in64[2]) : std::nullopt);
      EXPECT_TRUE(at::allclose(y.to(at::kDouble), y64, 1e-5, 1e-5));
      const auto grads = torch::autograd::grad({y}, in, {dy});
      const auto grads64 = torch::autograd::grad({y64}, in64, {dy.to(at::kDouble)});
      for (size_t i = 0; i < in.size(); ++i)
        EXPECT_TRUE(at::allclose(grads[i].to(at::kDouble), grads64[i], 1e-4, 1e-4)) << i;
    }
  }
}

// Few rows, other types and evaluation are left to torch.
TEST(OnednnLinear, IsForTrainingAlone) {
  const at::Tensor weight = at::randn({40, 24}).requires_grad_(true);
  EXPECT_FALSE(has_onednn_linear(at::zeros({1, 24}), weight));
  EXPECT_FALSE(has_onednn_linear(at::zeros({512, 24}, at::kDouble), weight));
  EXPECT_FALSE(has_onednn_linear(at::zeros({512, 24}), weight.detach()));
  const c10::NoGradGuard no_graph;
  EXPECT_FALSE(has_onednn_linear(at::zeros({512, 24}), weight));
}

}  // namespace
}  // namespace horner
