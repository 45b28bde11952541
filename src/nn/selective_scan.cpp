#include "nn/selective_scan.h"

#include <torch/csrc/autograd/custom_function.h>

#include "core/memory.h"

namespace horner {
namespace {

constexpr int64_t kStates = 16;

class Scan : public torch::autograd::Function<Scan> {
 public:
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* ctx,
      const at::Tensor& u,
      const at::Tensor& dt,
      const at::Tensor& A,
      const at::Tensor& B,
      const at::Tensor& C
  ) {
    at::Tensor marks;
    const Scanned y = selective_kernels().forward({u, dt, A, B, C}, marks);
    ctx->save_for_backward({u, dt, A, B, C, marks});
    ctx->mark_non_differentiable({y.last});
    return {y.y, y.last};
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list dy
  ) {
    const auto x = ctx->get_saved_variables();
    const ScanGrads d =
        selective_kernels().backward({x[0], x[1], x[2], x[3], x[4]}, x[5], dy[0].contiguous());
    return {d.du, d.ddt, d.dA, d.dB, d.dC};
  }
};

}  // namespace

SelectiveKernels& selective_kernels() {
  static SelectiveKernels kernels;
  return kernels;
}

bool can_scan(const Selective& x) {
  const bool type = x.u.scalar_type() == at::kFloat || x.u.scalar_type() == at::kBFloat16;
  return x.u.is_cuda() && has_memory(x.u) && type && selective_kernels().forward != nullptr &&
         x.u.numel() > 0 && x.A.size(1) == kStates && x.dt.scalar_type() == at::kFloat;
}

Scanned selective_scan(const Selective& x) {
  const auto y = Scan::apply(
      x.u.contiguous(),
      x.dt.contiguous(),
      x.A.to(at::kFloat).contiguous(),
      x.B.to(at::kFloat).contiguous(),
      x.C.to(at::kFloat).contiguous()
  );
  return {y[0], y[1]};
}

}  // namespace horner
