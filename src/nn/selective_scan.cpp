#include "nn/selective_scan.h"

#include <torch/csrc/autograd/custom_function.h>

#include "core/memory.h"

namespace horner {
namespace {

constexpr int64_t kStates = 16, kVector = 4;

using Maybe = std::optional<at::Tensor>;

class Scan : public torch::autograd::Function<Scan> {
 public:
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* ctx,
      const at::Tensor& u,
      const at::Tensor& dt,
      const at::Tensor& A,
      const at::Tensor& B,
      const at::Tensor& C,
      const Maybe& z,
      const Maybe& D
  ) {
    at::Tensor marks, none;
    const Selective x{u, dt, A, B, C, z ? *z : none, D ? *D : none};
    const Scanned y = selective_kernels().forward(x, marks);
    ctx->save_for_backward({u, dt, A, B, C, x.z, x.D, marks});
    ctx->mark_non_differentiable({y.last});
    return {y.y, y.last};
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list dy
  ) {
    const auto x = ctx->get_saved_variables();
    const ScanGrads d = selective_kernels().backward(
        {x[0], x[1], x[2], x[3], x[4], x[5], x[6]}, x[7], dy[0].contiguous()
    );
    return {d.du, d.ddt, d.dA, d.dB, d.dC, d.dz, d.dD};
  }
};

// z with rows at one distance, in whole units of 4 numbers.
at::Tensor with_rows(const at::Tensor& z) {
  const bool fine = z.stride(2) == 1 && z.stride(1) % kVector == 0 &&
                    (z.size(0) == 1 || z.stride(0) == z.size(1) * z.stride(1)) &&
                    z.storage_offset() % kVector == 0;
  return fine ? z : z.contiguous();
}

}  // namespace

SelectiveKernels& selective_kernels() {
  static SelectiveKernels kernels;
  return kernels;
}

bool can_scan(const Selective& x) {
  const bool type = x.u.scalar_type() == at::kFloat || x.u.scalar_type() == at::kBFloat16;
  const at::ScalarType step = x.z.defined() ? x.u.scalar_type() : at::kFloat;
  const bool gate =
      !x.z.defined() || (x.z.scalar_type() == x.u.scalar_type() && x.D.scalar_type() == at::kFloat);
  return gate && x.u.size(2) % kVector == 0 && x.u.is_cuda() && has_memory(x.u) && type &&
         selective_kernels().forward != nullptr && x.u.numel() > 0 && x.A.size(1) == kStates &&
         x.dt.scalar_type() == step;
}

Scanned selective_scan(const Selective& x) {
  const auto y = Scan::apply(
      x.u.contiguous(),
      x.dt.contiguous(),
      x.A.to(at::kFloat).contiguous(),
      x.B.to(at::kFloat).contiguous(),
      x.C.to(at::kFloat).contiguous(),
      x.z.defined() ? Maybe(with_rows(x.z)) : std::nullopt,
      x.D.defined() ? Maybe(x.D.contiguous()) : std::nullopt
  );
  return {y[0], y[1]};
}

}  // namespace horner
