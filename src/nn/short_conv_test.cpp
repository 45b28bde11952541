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

// q, k and v: three parts, of which two get unit length. Results, and gradients of parts, weight and bias.
Tensors evaluate_parts(const Tensors& given, const Tensors& dy, int64_t unit, bool kernel) {
  Tensors leaves;
  for (const at::Tensor& x : given) leaves.push_back(x.detach().clone().requires_grad_(true));
  const std::vector<ConvPart> parts = {{leaves[0], unit}, {leaves[1], unit}, {leaves[2]}};
  Tensors y;
  if (kernel) {
    y = convolve(parts, {leaves[3], leaves[4], true});
  } else {
    const ShortConv conv{leaves[3], leaves[4], "silu"};
    const Context context;
    const State none;
    Pass pass(none, context);
    y = conv(parts, pass);
  }
  Tensors grads;
  for (size_t i = 0; i < dy.size(); ++i) grads.push_back(dy[i].to(y[i].scalar_type()));
  Tensors all = torch::autograd::grad(y, leaves, grads);
  all.insert(all.end(), y.begin(), y.end());
  return all;
}

Tensors draw_parts(int64_t T, int64_t W, int64_t unit) {
  const int64_t q = 3 * unit, v = 132;
  const auto like = at::kDouble;
  return {
      at::randn({2, T, q}, like),
      at::randn({2, T, q}, like),
      at::randn({2, T, v}, like),
      at::randn({2 * q + v, W}, like),
      at::randn({2 * q + v}, like)};
}

TEST(ShortConv, PartsHaveTheGradientsOfTheDefinition) {
  at::manual_seed(0);
  for (const int64_t W : {1, 3, 4}) {
    const Tensors given = draw_parts(9, W, 8);
    const Tensors dy = {
        at::randn_like(given[0]), at::randn_like(given[1]), at::randn_like(given[2])};
    expect_near(evaluate_parts(given, dy, 8, true), evaluate_parts(given, dy, 8, false), 1e-10);
  }
}

TEST(ShortConvCuda, PartsAreThePlainOnes) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  at::manual_seed(0);
  for (const int64_t T : {4, 70, 513, 1030}) {
    for (const int64_t unit : {16, 64, 128}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        SCOPED_TRACE(testing::Message() << "T " << T << ", unit " << unit << " " << type);
        Tensors given = draw_parts(T, 4, unit), dy, exact_given;
        for (size_t i = 0; i < given.size(); ++i)
          given[i] = given[i].to(at::kCUDA, i < 3 ? type : at::kFloat);
        for (size_t i = 0; i < 3; ++i) dy.push_back(at::randn_like(given[i]));
        // Parts of one tensor, as a split projection leaves them.
        const at::Tensor joined = at::cat({given[0], given[1], given[2]}, 2);
        const int64_t q = given[0].size(2);
        Tensors views = {
            joined.narrow(2, 0, q), joined.narrow(2, q, q), joined.narrow(2, 2 * q, 132)};
        for (const at::Tensor& x : given) exact_given.push_back(x.to(at::kDouble));
        const Tensors exact = evaluate_parts(exact_given, dy, unit, false);
        ASSERT_TRUE(can_convolve({{views[0], unit}, {views[2]}}, {given[3], given[4], true}));
        const Tensors got = evaluate_parts(given, dy, unit, true);
        expect_near(got, exact, type == at::kFloat ? 1e-5 : 6e-3);
        const Tensors from_views =
            convolve({{views[0], unit}, {views[1], unit}, {views[2]}}, {given[3], given[4], true});
        for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(from_views[i].equal(got[5 + i])) << i;
      }
    }
  }
}

TEST(ShortConv, HasNoKernelOnACpu) {
  EXPECT_FALSE(can_convolve(at::randn({1, 8, 4}), {at::randn({4, 4}), {}, true}));
}

}  // namespace
}  // namespace horner
