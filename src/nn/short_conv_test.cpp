#include "nn/short_conv.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"
#include "mixers/mixer.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;

// y, and the gradients of x, weight and bias.
Tensors evaluate(const Tensors& given, const at::Tensor& dy, bool silu, at::ScalarType type) {
  Tensors leaves;
  for (const at::Tensor& x : given) {
    const bool data = leaves.empty();
    const at::ScalarType own = data || type == at::kDouble ? type : at::kFloat;
    leaves.push_back(x.to(own).detach().requires_grad_(true));
  }
  const ShortConv conv{
      leaves[1], leaves.size() > 2 ? leaves[2] : at::Tensor(), silu ? "silu" : "none"};
  const Context context;
  const State none;
  Pass pass(none, context);
  const at::Tensor y = conv(leaves[0], pass);
  Tensors all = torch::autograd::grad({y}, leaves, {dy.to(type)});
  all.push_back(y.detach());
  all.push_back(pass.after().parts.at(0));  // what the next piece needs
  return all;
}

void expect_near(const Tensors& got, const Tensors& exact, double bound) {
  for (size_t i = 0; i < exact.size(); ++i) {
    const at::Tensor d = got[i].to(at::kDouble) - exact[i];
    EXPECT_LE(d.norm().item<double>(), bound * exact[i].norm().item<double>()) << i;
  }
}

TEST(ShortConvCuda, IsThePlainOne) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  at::manual_seed(0);
  for (const int64_t W : {1, 2, 3, 4}) {
    for (const int64_t T : {4, 31, 257, 600}) {
      for (const bool silu : {false, true}) {
        const int64_t C = silu ? 132 : 4;
        const auto like = at::device(at::kCUDA).dtype(at::kBFloat16);
        Tensors given = {at::randn({3, T, C}, like), at::randn({C, W}, like)};
        if (W % 2 == 0) given.push_back(at::randn({C}, like));
        const at::Tensor dy = at::randn({3, T, C}, like);
        ASSERT_TRUE(can_convolve(given[0], {given[1], {}, silu}));
        const Tensors exact = evaluate(given, dy, silu, at::kDouble);
        SCOPED_TRACE(testing::Message() << "W " << W << ", T " << T << ", silu " << silu);
        expect_near(evaluate(given, dy, silu, at::kFloat), exact, 1e-5);
        const Tensors low = evaluate(given, dy, silu, at::kBFloat16);
        expect_near(low, exact, 4e-3);
        const Tensors again = evaluate(given, dy, silu, at::kBFloat16);
        for (size_t i = 0; i < low.size(); ++i) EXPECT_TRUE(low[i].equal(again[i])) << i;
      }
    }
  }
}

TEST(ShortConvCuda, LeavesTheRestToPlainOperations) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const at::Tensor x = at::randn({1, 8, 4}, at::kCUDA);
  EXPECT_FALSE(can_convolve(x, {at::randn({4, 5}, at::kCUDA), {}, true}));
  EXPECT_FALSE(can_convolve(x.to(at::kDouble), {at::randn({4, 4}, at::kCUDA), {}, true}));
  EXPECT_FALSE(can_convolve(x.narrow(2, 0, 3), {at::randn({3, 4}, at::kCUDA), {}, true}));
}

TEST(ShortConv, HasNoKernelOnACpu) {
  EXPECT_FALSE(can_convolve(at::randn({1, 8, 4}), {at::randn({4, 4}), {}, true}));
}

}  // namespace
}  // namespace horner
