#include "nn/linears.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Problem {
  Tensors leaves;  // x, W_0, W_1, W_2, b_1
  Tensors dy;
  std::vector<Linear> list;

  Problem(at::Device device, at::ScalarType type) {
    at::manual_seed(0);
    const auto make = [&](at::IntArrayRef sizes) {
      return at::randn(sizes, at::kDouble).to(device, type);
    };
    for (const auto& sizes :
         std::vector<std::vector<int64_t>>{{2, 40, 64}, {64, 64}, {32, 64}, {8, 64}, {32}})
      leaves.push_back(make(sizes).requires_grad_(true));
    for (const int64_t n : {64, 32, 8}) dy.push_back(make({2, 40, n}));
    list = {{leaves[1], {}}, {leaves[2], leaves[4]}, {leaves[3], {}}};
  }
  // Results and gradients; the sum over all results, or over two of them.
  Tensors all(const Tensors& y, size_t used) const {
    Tensors some(y.begin(), y.begin() + int64_t(used)), flows;
    for (size_t i = 0; i < used; ++i) flows.push_back(dy[i].to(y[i].scalar_type()));
    const Tensors wanted = used == 3 ? leaves : Tensors{leaves[0], leaves[1], leaves[2], leaves[4]};
    Tensors d = torch::autograd::grad(some, wanted, flows);
    d.insert(d.end(), y.begin(), y.end());
    return d;
  }
  Tensors plain() const {
    Tensors y;
    for (const Linear& l : list) y.push_back(at::linear(leaves[0], l.weight, l.bias));
    return y;
  }
};

double error(const at::Tensor& x, const at::Tensor& exact) {
  return (x.to(at::kCPU, at::kDouble) - exact).norm().item<double>() / exact.norm().item<double>();
}

TEST(Linears, HaveTheGradientsOfSeparateProducts) {
  const Problem p(at::kCPU, at::kDouble);
  for (const size_t used : {3, 2}) {
    const Tensors exact = p.all(p.plain(), used),
                  got = p.all(project_by_node(p.leaves[0], p.list), used);
    ASSERT_EQ(got.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) EXPECT_LT(error(got[i], exact[i]), 1e-13) << i;
  }
  EXPECT_FALSE(linears(p.leaves[0], p.list[0], Linear{}, p.list[1])[1].defined());
  EXPECT_EQ(linears(p.leaves[0], p.list[0], Linear{}, p.list[1])[2].size(-1), 32);
  const c10::NoGradGuard none;
  EXPECT_FALSE(project(p.leaves[0], p.list)[1].requires_grad());
}

TEST(LinearsCuda, AgreeWithSeparateProducts) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Problem wide(at::kCPU, at::kDouble), p(at::kCUDA, at::kFloat);
  const Tensors exact = wide.all(wide.plain(), 3);
  for (const bool bf16 : {false, true}) {
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCUDA, bf16);
    const Tensors y = project(p.leaves[0], p.list), theirs = p.plain();
    at::autocast::set_autocast_enabled(at::kCUDA, false);
    at::autocast::clear_cache();
    const Tensors got = p.all(y, 3), plain = p.all(theirs, 3);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(got[i].scalar_type(), plain[i].scalar_type()) << i;
      EXPECT_LT(error(got[i], exact[i]), 2 * error(plain[i], exact[i]) + 1e-6) << i;
    }
  }
}

}  // namespace
}  // namespace horner
