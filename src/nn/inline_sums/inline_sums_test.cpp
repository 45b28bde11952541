#include "nn/inline_sums/inline_sums.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Case {
  int64_t B, T, H, K, taps;
};
const Case kCases[] = {
    {2, 77, 3, 64, 3},
    {1, 300, 2, 128, 4},
    {2, 1, 1, 16, 3},
    {3, 1030, 2, 64, 3},
    {1, 140, 2, 32, 1}};

at::Tensor narrow(at::IntArrayRef sizes, double offset = 0) {
  return (at::randn(sizes, at::kCUDA) + offset).to(at::kBFloat16);
}
at::Tensor exact(const at::Tensor& x) {
  return x.detach().to(at::kDouble).requires_grad_(x.requires_grad());
}
Tensors exact(const Tensors& all) {
  Tensors wide;
  for (const at::Tensor& x : all) wide.push_back(exact(x));
  return wide;
}
at::Tensor numbers(int64_t T) {  // 1 .. T as (T,1,1)
  return at::arange(1, T + 1, at::device(at::kCUDA).dtype(at::kDouble)).view({T, 1, 1});
}

// Values and gradients: those of a kernel err at most by `bound`, and are the same a second time.
void expect_same(
    const Tensors& got, const Tensors& again, const Tensors& plain, double bound, const Case& c
) {
  ASSERT_EQ(got.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    const at::Tensor d = got[i].detach().to(at::kDouble) - plain[i].detach();
    EXPECT_LE(d.norm().item<double>(), bound * plain[i].norm().item<double>() + 1e-7)
        << "value " << i << ", T " << c.T << ", K " << c.K;
    EXPECT_TRUE(got[i].equal(again[i])) << "value " << i << ", T " << c.T << ", K " << c.K;
  }
}

// y, then the gradients of x.
Tensors with_gradients(const Tensors& y, const Tensors& x, const Tensors& dy) {
  Tensors all = y, d;
  for (size_t i = 0; i < y.size(); ++i) d.push_back(dy[i].to(y[i].scalar_type()));
  for (const at::Tensor& g : torch::autograd::grad(y, x, d, true)) all.push_back(g);
  return all;
}

TEST(InlineSumsCuda, WeightsAreThePlainOnes) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  at::manual_seed(0);
  for (const Case& c : kCases) {
    Tensors x = {
        narrow({c.B, c.T, c.H, c.K}),
        narrow({c.B, c.T, c.H, c.K}, 3),
        narrow({c.B, c.T, c.H, c.K}, -2)};
    for (at::Tensor& each : x) each.requires_grad_(true);
    ASSERT_TRUE(inline_fuses(x[0], x[1], x[2], c.taps));
    const Tensors dy = {
        narrow({c.B, c.T, c.H, c.K}),
        narrow({c.B, c.T, c.H, c.K}),
        narrow({c.B, c.T, c.H, c.K}),
        at::randn({c.B, c.T, c.H}, at::kCUDA)};
    const auto run = [&] {
      const InlineWeighted w = inline_weights(x[0], x[1], x[2]);
      return with_gradients({w.qh, w.k, w.v, w.c}, x, dy);
    };
    const Tensors got = run(), wide = exact(x);
    const at::Tensor n = numbers(c.T), first = wide[1].narrow(1, 0, 1).detach();
    const auto rounded = [](const at::Tensor& y, const at::Tensor& to) {  // with y's gradient
      return y + (to.to(at::kDouble) - y).detach();
    };
    const at::Tensor qh = rounded(wide[0] / (n * std::sqrt(double(c.K))), got[0]),
                     k = rounded(wide[1] - first, got[1]),
                     v = wide[2] - wide[2].narrow(1, 0, 1).detach();
    const at::Tensor weight = (1 - (qh * k.cumsum(1)).sum(-1)) / n.squeeze(-1);
    const Tensors plain = with_gradients({qh, k, v, weight}, wide, exact(dy));
    expect_same(got, run(), plain, 4e-3, c);
    const at::Tensor error = got[3].detach().to(at::kDouble) - plain[3].detach();
    EXPECT_LE(error.norm().item<double>(), 1e-5 * plain[3].norm().item<double>());
    const at::Tensor key = (wide[1] - first).detach();
    EXPECT_LE(
        (got[1].detach().to(at::kDouble) - key).norm().item<double>(),
        4e-3 * key.norm().item<double>()
    );
  }
}

TEST(InlineSumsCuda, OutputsAreThePlainOnes) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  at::manual_seed(1);
  for (const Case& c : kCases) {
    for (const int64_t taps : {c.taps, int64_t(0)}) {
      const at::Tensor v = narrow({c.B, c.T, c.H, c.K}, 2);
      Tensors x = {
          narrow({c.B, c.T, c.H, c.K}),
          (v - v.narrow(1, 0, 1)),
          at::randn({c.B, c.T, c.H}, at::kCUDA)};
      if (taps > 0) {
        x.push_back(narrow({c.H, c.B, c.T, taps * c.K}));
        x.push_back(at::randn({c.H, taps * c.K}, at::kCUDA));
      }
      for (at::Tensor& each : x) each.requires_grad_(true);
      const at::Tensor dy = narrow({c.B, c.T, c.H, c.K});
      const auto run = [&] {
        const InlineWeighted w{{}, {}, x[1], x[2]};
        const at::Tensor o =
            taps > 0 ? inline_output(x[0], v, w, x[3], x[4]) : inline_output(x[0], v, w, {}, {});
        return with_gradients({o}, x, {dy});
      };
      const Tensors wide = exact(x);
      // v as v' + v_1, so that v' has the gradient of the taps too.
      const at::Tensor first = exact(v).narrow(1, 0, 1);
      const at::Tensor values = wide[1] + (exact(v) - wide[1]).detach();
      at::Tensor o = wide[0] + wide[2].unsqueeze(-1) * (values - first).cumsum(1) + first;
      for (int64_t j = 0; j < std::min(taps, c.T); ++j) {
        const at::Tensor rk = (wide[3] + wide[4].unsqueeze(1).unsqueeze(1))
                                  .narrow(-1, j * c.K, c.K)
                                  .permute({1, 2, 0, 3});
        const at::Tensor late = at::constant_pad_nd(values, {0, 0, 0, 0, j, -j});
        o = o + rk * late;
      }
      expect_same(run(), run(), with_gradients({o}, wide, {exact(dy)}), 4e-3, c);
    }
  }
}

TEST(InlineSumsCuda, TapsAreThePlainOnes) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  at::manual_seed(2);
  for (const Case& c : kCases) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      Tensors x = {
          narrow({c.B, c.T, c.H * c.K}, 0.5).to(type),
          narrow({c.H, c.K, c.K}).to(at::kFloat) / 8,
          at::randn({c.H, c.K}, at::kCUDA),
          narrow({c.H, c.K, c.taps * c.K}).to(at::kFloat) / 8};
      for (at::Tensor& each : x) each.requires_grad_(true);
      const at::Tensor dy = narrow({c.H, c.B, c.T, c.taps * c.K});
      const auto run = [&] {
        return with_gradients({inline_taps(x[0], {x[1], x[2], x[3]})}, x, {dy});
      };
      const Tensors wide = exact(x);
      const at::Tensor mean = (wide[0].cumsum(1) / numbers(c.T).squeeze(-1))
                                  .unflatten(-1, {c.H, c.K})
                                  .permute({2, 0, 1, 3});
      const auto product = [](const at::Tensor& a, const at::Tensor& W) {
        return at::matmul(a, W.unsqueeze(1));
      };
      const at::Tensor hidden =
          at::gelu(product(mean, wide[1]) + wide[2].unsqueeze(1).unsqueeze(1));
      const Tensors plain = with_gradients({product(hidden, wide[3])}, wide, {exact(dy)});
      expect_same(run(), run(), plain, 1e-2, c);
    }
  }
}

}  // namespace
}  // namespace horner
