#include "nn/position/rotate.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"
#include "nn/position/position.h"

namespace horner {
namespace {

// Value and gradient against the plain form in fp64, for angles per row, per head and shared.
void expect_turns(at::Device device, at::ScalarType type, double bound) {
  at::manual_seed(0);
  for (const auto& [rows, heads] : {std::pair<int64_t, int64_t>{1, 1}, {3, 1}, {3, 4}}) {
    const at::Tensor angle = (at::randn({rows, 5, heads, 3}, at::kDouble) * 10).to(device);
    at::Tensor x = at::randn({3, 5, 4, 6}).to(device, type).requires_grad_(true);
    const at::Tensor x64 = x.detach().to(at::kDouble).requires_grad_(true);
    const at::Tensor dy = at::randn({3, 5, 4, 6}).to(device, type);
    ASSERT_TRUE(can_rotate_pairs(x));
    ASSERT_FALSE(can_rotate_pairs(x64));
    const at::Tensor y = rotated(x, angle), y64 = rotated(x64, angle);
    EXPECT_LT((y.to(at::kDouble) - y64).abs().max().item<double>(), bound);
    const at::Tensor dx = torch::autograd::grad({y}, {x}, {dy})[0];
    const at::Tensor dx64 = torch::autograd::grad({y64}, {x64}, {dy.to(at::kDouble)})[0];
    EXPECT_LT((dx.to(at::kDouble) - dx64).abs().max().item<double>(), bound);
  }
}

TEST(Rotate, TurnsPairs) { expect_turns(at::kCPU, at::kFloat, 1e-5); }

TEST(RotateCuda, TurnsPairs) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_turns(at::kCUDA, at::kFloat, 1e-5);
  expect_turns(at::kCUDA, at::kBFloat16, 4e-2);
}

}  // namespace
}  // namespace horner
