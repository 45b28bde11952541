#include "nn/selective_scan.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"
#include "ops/op.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;

// y, the last h, and the gradients of u, dt, A, B and C, with a gate also of z and D; by the op `scan` in fp64, or by the kernel.
Tensors evaluate(const Tensors& given, const at::Tensor& dy, at::ScalarType type) {
  Tensors x;
  for (const at::Tensor& each : given) {
    const bool gate = given.size() > 5;
    const bool typed = type == at::kDouble || x.empty() ||
                       (gate && (x.size() == 1 || x.size() == 5));  // u, step, z
    const at::ScalarType own = typed ? type : at::kFloat;
    x.push_back(each.to(own).detach().requires_grad_(true));
  }
  at::Tensor y, last;
  if (type == at::kDouble) {
    Inputs in;
    const at::Tensor dt = x.size() > 5 ? at::softplus(x[1]) : x[1];
    in.v = (dt * x[0]).unsqueeze(-1) * x[3].unsqueeze(2);
    in.g = x[2] * dt.unsqueeze(-1);
    Options options;
    options.final_state = true;
    const Result h = run(find_op("scan"), in, {}, options);
    y = (h.o * x[4].unsqueeze(2)).sum(-1);
    if (x.size() > 5) y = (y + x[6] * x[0]) * at::silu(x[5]);
    last = h.state.parts[0];
  } else {
    Selective all{x[0], x[1], x[2], x[3], x[4]};
    if (x.size() > 5) {  // half of wider rows, as a projection gives it
      all.z = at::cat({x[5], x[5]}, -1).narrow(-1, 0, x[5].size(-1));
      all.D = x[6];
    }
    EXPECT_TRUE(can_scan(all));
    const Scanned out = selective_scan(all);
    y = out.y, last = out.last;
  }
  Tensors values = torch::autograd::grad({y}, x, {dy.to(y.scalar_type())}, {}, false, true);
  values.push_back(y.detach());
  values.push_back(last.detach());
  return values;
}

void expect_the_scan(bool gate) {
  at::manual_seed(0);
  const auto like = at::device(at::kCUDA).dtype(at::kBFloat16);
  for (const int64_t T : {1, 7, 64, 65, 300}) {
    for (const int64_t E : {4, 64, 200}) {
      Tensors given = {
          at::randn({3, T, E}, like),
          at::randn({3, T, E}, like).exp() / 8,
          -at::randn({E, 16}, like).exp(),
          at::randn({3, T, 16}, like),
          at::randn({3, T, 16}, like)};
      if (gate) {
        given[1] = at::randn({3, T, E}, like) - 2;
        given.push_back(at::randn({3, T, E}, like));
        given.push_back(at::randn({E}, like));
      }
      const at::Tensor dy = at::randn({3, T, E}, like);
      const Tensors exact = evaluate(given, dy, at::kDouble);
      for (const auto& [type, bound] : {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 4e-3}}) {
        const Tensors got = evaluate(given, dy, type), again = evaluate(given, dy, type);
        for (size_t i = 0; i < exact.size(); ++i) {
          if (!exact[i].defined()) continue;  // A, of one token
          const at::Tensor d = got[i].to(at::kDouble) - exact[i];
          EXPECT_LE(d.norm().item<double>(), bound * exact[i].norm().item<double>())
              << "value " << i << ", T " << T << ", E " << E;
          EXPECT_TRUE(got[i].equal(again[i])) << "value " << i;
        }
      }
    }
  }
}

TEST(SelectiveScanCuda, IsTheScan) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_the_scan(false);
}

TEST(SelectiveScanCuda, IsTheScanThroughAGate) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_the_scan(true);
}

TEST(SelectiveScan, HasNoKernelOnACpu) {
  const at::Tensor x = at::randn({1, 4, 8}), A = at::randn({8, 16}), B = at::randn({1, 4, 16});
  EXPECT_FALSE(can_scan({x, x, A, B, B}));
}

}  // namespace
}  // namespace horner
