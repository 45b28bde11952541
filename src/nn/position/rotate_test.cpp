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

// Queries and keys in one call, each with its own heads, read where they lie in a wider tensor, against the plain form.
void expect_turns_both(at::Device device, at::ScalarType type, double bound) {
  at::manual_seed(0);
  const int64_t B = 2, T = 37, H = 6;
  for (const int64_t P : {3, 8, 32, 48, 128}) {
    for (const auto& [rows, A] : {std::pair<int64_t, int64_t>{1, 1}, {B, 1}, {B, 2}, {1, 2}}) {
      const int64_t G = 2, K = 2 * P;
      const at::Tensor angle = (at::randn({rows, T, A, P}, at::kDouble) * 10).to(device);
      const at::Tensor all = at::randn({B, T, (H + G) * K}).to(device, type).requires_grad_(true);
      const auto part = [&](const at::Tensor& x, int64_t from, int64_t heads) {
        return x.narrow(2, from * K, heads * K).unflatten(2, {heads, K});
      };
      const std::vector<at::Tensor> y = rotate_pairs(
          {part(all, 0, H), part(all, H, G)}, angle.cos().to(at::kFloat), angle.sin().to(at::kFloat)
      );
      const at::Tensor all64 = all.detach().to(at::kDouble).requires_grad_(true);
      const std::vector<at::Tensor> y64 = {
          rotated(part(all64, 0, H), A == 1 ? angle : angle.repeat_interleave(H / A, 2)),
          rotated(part(all64, H, G), angle)};
      std::vector<at::Tensor> dy, dy64;
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(y[i].is_contiguous());
        EXPECT_LT((y[i].to(at::kDouble) - y64[i]).abs().max().item<double>(), bound) << P;
        // A gradient with heads before tokens, as attention may give it.
        dy.push_back(at::randn_like(y[i].transpose(1, 2).contiguous()).transpose(1, 2));
        dy64.push_back(dy[i].to(at::kDouble));
      }
      const at::Tensor dx = torch::autograd::grad(y, {all}, dy)[0];
      const at::Tensor dx64 = torch::autograd::grad(y64, {all64}, dy64)[0];
      EXPECT_LT((dx.to(at::kDouble) - dx64).abs().max().item<double>(), bound) << P;
    }
  }
}

TEST(Rotate, TurnsQueriesAndKeysInOneCall) { expect_turns_both(at::kCPU, at::kFloat, 1e-5); }

TEST(RotateCuda, TurnsQueriesAndKeysInOneCall) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_turns_both(at::kCUDA, at::kFloat, 1e-5);
  expect_turns_both(at::kCUDA, at::kBFloat16, 4e-2);
}

TEST(Rotate, TurnsPairs) { expect_turns(at::kCPU, at::kFloat, 1e-5); }

TEST(RotateCuda, TurnsPairs) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_turns(at::kCUDA, at::kFloat, 1e-5);
  expect_turns(at::kCUDA, at::kBFloat16, 4e-2);
}

}  // namespace
}  // namespace horner
