#include "nn/features/scalar_networks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

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

struct Case {
  int64_t R, E, n, M;  // u: (n,M)
  bool positive, shifted;
};

// As `evaluate`, with a shift, the relu and the scale; u, y and their gradients in bf16 or fp32.
Tensors evaluate(const Tensors& given, const at::Tensor& dy, at::ScalarType type, const Case& c) {
  Tensors x;
  for (const at::Tensor& each : given) {
    const at::ScalarType own = type == at::kDouble || x.empty() ? type : at::kFloat;
    x.push_back(each.to(own).detach().requires_grad_(true));
  }
  Networks networks{x[1], x[2], x[3], x[4]};
  if (c.shifted) networks.shift = x[5];
  networks.positive = c.positive;
  networks.scale = 0.75;
  at::Tensor y;
  if (type == at::kDouble) {
    at::Tensor u = x[0];
    if (c.shifted) {  // rounded to fp32, as the kernel does
      const at::Tensor exact = x[0] + x[5];
      u = exact + (exact.to(at::kFloat).to(type) - exact).detach();
    }
    const at::Tensor z = u.unsqueeze(-1).unsqueeze(-1) * x[1] + x[2];
    y = (z.relu() * x[3]).sum(-1) + x[4];
    y = (c.positive ? y.relu() : y) * 0.75;
  } else {
    EXPECT_TRUE(can_apply(x[0], networks));
    y = apply_networks(x[0], networks);
  }
  Tensors all = torch::autograd::grad({y}, x, {dy.to(type)}, {}, false, true);
  all.push_back(y.detach());
  return all;
}

// Kinks that coincide, units without a kink, numbers on a kink and far from all kinks.
TEST(ScalarNetworksCuda, AreThePlainOnesAtTheirKinks) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  at::manual_seed(1);
  for (const Case& c :
       {Case{4, 64, 3000, 16, true, true},
        {4, 64, 3001, 16, false, true},
        {2, 130, 333, 1, true, false},
        {5, 6, 77, 32, true, true},
        {16, 64, 50, 4, false, false},
        {1, 1024, 9, 8, true, true}}) {
    Tensors given = {
        at::randn({c.n, c.M}, at::kCUDA),
        at::randn({c.R, c.E}, at::kCUDA),
        at::randn({c.R, c.E}, at::kCUDA),
        at::randn({c.R, c.E}, at::kCUDA),
        at::randn({c.R}, at::kCUDA),
        at::randn({c.M}, at::kCUDA)};
    at::Tensor &u = given[0], &f1 = given[1], &b1 = given[2];
    f1.select(1, 0).zero_();
    if (c.E > 5) {
      b1.select(1, 1).zero_();  // a kink at 0
      f1.select(1, 3).copy_(-f1.select(1, 2));
      b1.select(1, 3).copy_(-b1.select(1, 2));  // the same kink, from the other side
      f1.select(1, 4).mul_(1e-20);
    }
    if (!c.shifted) u.select(0, 0).copy_((-b1.select(1, -1) / f1.select(1, -1))[0].expand(c.M));
    u.select(0, 1).zero_();
    u.select(0, 2).fill_(1e5);
    u.select(0, 3).fill_(-1e5);
    u = u.to(at::kBFloat16).to(at::kFloat);
    const at::Tensor dy = at::randn({c.n, c.M, c.R}, at::kCUDA).to(at::kBFloat16).to(at::kFloat);
    const Tensors exact = evaluate(given, dy, at::kDouble, c);
    for (const auto& [type, bound] : {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 4e-3}}) {
      const Tensors got = evaluate(given, dy, type, c), again = evaluate(given, dy, type, c);
      for (size_t i = 0; i < exact.size(); ++i) {
        if (!exact[i].defined()) continue;  // no shift
        const at::Tensor d = got[i].to(at::kDouble) - exact[i];
        EXPECT_LE(d.norm().item<double>(), bound * exact[i].norm().item<double>() + 1e-6)
            << "value " << i << ", R " << c.R << ", E " << c.E << ", " << type;
        EXPECT_TRUE(got[i].equal(again[i])) << "value " << i;
      }
    }
  }
}

TEST(ScalarNetworksCuda, ShowWhatIsNoNumber) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  at::manual_seed(2);
  const at::Tensor f1 = at::randn({4, 64}, at::kCUDA), b1 = at::randn({4, 64}, at::kCUDA),
                   f2 = at::randn({4, 64}, at::kCUDA), b2 = at::randn({4}, at::kCUDA);
  const at::Tensor u = at::randn({7}, at::kCUDA);
  u[2] = std::numeric_limits<float>::quiet_NaN();
  u[3] = std::numeric_limits<float>::infinity();
  Networks networks{f1, b1, f2, b2};
  networks.positive = true;
  const at::Tensor y = apply_networks(u, networks);
  EXPECT_TRUE(y[2].isnan().all().item<bool>());
  EXPECT_TRUE((y[3].isinf() | y[3].isnan() | (y[3] == 0)).all().item<bool>());
  for (const int64_t i : {0, 1, 4, 5, 6}) EXPECT_TRUE(y[i].isfinite().all().item<bool>());
  const at::Tensor bad = f1.clone();
  bad[1][5] = std::numeric_limits<float>::quiet_NaN();
  networks.f1 = bad;
  EXPECT_TRUE(apply_networks(u, networks).select(1, 1).isnan().all().item<bool>());
}

TEST(ScalarNetworks, HaveNoKernelOnACpu) {
  const at::Tensor w = at::randn({4, 8});
  EXPECT_FALSE(can_apply(at::randn({5}), {w, w, w, at::randn({4})}));
}

}  // namespace
}  // namespace horner
