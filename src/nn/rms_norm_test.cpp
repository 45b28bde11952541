#include "nn/rms_norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace horner {
namespace {

// Value and gradients against the equation in fp64, for widths around the lanes.
TEST(RmsNorm, IsItsEquation) {
  at::manual_seed(0);
  for (const int64_t n : {1, 15, 16, 17, 64, 200}) {
    at::Tensor x = at::randn({3, 37, n}).requires_grad_(true),
               w = at::randn({n}).requires_grad_(true);
    const at::Tensor dy = at::randn({3, 37, n});
    const at::Tensor x64 = x.detach().to(at::kDouble).requires_grad_(true),
                     w64 = w.detach().to(at::kDouble).requires_grad_(true);
    const at::Tensor y = rms_norm(x, w, 1e-5);
    const at::Tensor y64 = x64 * (x64.square().mean(-1, true) + 1e-5).rsqrt() * w64;
    const auto grads = torch::autograd::grad({y}, {x, w}, {dy});
    const auto grads64 = torch::autograd::grad({y64}, {x64, w64}, {dy.to(at::kDouble)});
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), y64, 1e-5, 1e-5)) << n;
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(at::allclose(grads[i].to(at::kDouble), grads64[i], 1e-4, 1e-4)) << n << " " << i;
  }
}

}  // namespace
}  // namespace horner
