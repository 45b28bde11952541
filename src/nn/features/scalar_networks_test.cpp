#include "nn/features/scalar_networks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;

// y, and the gradients of u, f1, b1, f2 and b2: plain in fp64, or by the kernel.
Tensors evaluate(const Tensors& given, const at::Tensor& dy, at::ScalarType type) {
  Tensors x;
  for (const at::Tensor& each : given) x.push_back(each.to(type).detach().requires_grad_(true));
  const Networks networks{x[1], x[2], x[3], x[4]};
  EXPECT_EQ(can_apply(x[0], networks), type == at::kFloat);
  const at::Tensor z = x[0].unsqueeze(-1).unsqueeze(-1) * x[1] + x[2];
  const at::Tensor y =
      type == at::kFloat ? apply_networks(x[0], networks) : (z.relu() * x[3]).sum(-1) + x[4];
  Tensors all = torch::autograd::grad({y}, x, {dy.to(type)});
  all.push_back(y.detach());
  return all;
}

TEST(ScalarNetworksCuda, AreThePlainOnes) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  at::manual_seed(0);
  for (const auto& [R, E] : {std::pair<int64_t, int64_t>{1, 1}, {4, 64}, {3, 7}, {16, 64}}) {
    for (const int64_t n : {1, 255, 1025, 200000}) {
      for (const bool shared : {false, true}) {
        const int64_t rows = shared ? 1 : R;
        const Tensors given = {
            at::randn({n}, at::kCUDA),
            at::randn({rows, E}, at::kCUDA),
            at::randn({rows, E}, at::kCUDA),
            at::randn({R, E}, at::kCUDA),
            at::randn({R}, at::kCUDA)};
        const at::Tensor dy = at::randn({n, R}, at::kCUDA);
        const Tensors exact = evaluate(given, dy, at::kDouble),
                      got = evaluate(given, dy, at::kFloat),
                      again = evaluate(given, dy, at::kFloat);
        for (size_t i = 0; i < exact.size(); ++i) {
          const at::Tensor d = got[i].to(at::kDouble) - exact[i];
          EXPECT_LE(d.norm().item<double>(), 1e-4 * exact[i].norm().item<double>() + 1e-6)
              << "value " << i << ", R " << R << ", E " << E << ", n " << n;
          EXPECT_TRUE(got[i].equal(again[i])) << "value " << i;
        }
      }
    }
  }
}

TEST(ScalarNetworks, HaveNoKernelOnACpu) {
  const at::Tensor w = at::randn({4, 8});
  EXPECT_FALSE(can_apply(at::randn({5}), {w, w, w, at::randn({4})}));
}

}  // namespace
}  // namespace horner
