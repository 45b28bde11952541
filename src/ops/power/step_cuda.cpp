// `power`, one token at a time (step.cu).
#include "ops/step_cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/power/power.h"
#include "ops/power/power_cuda.h"

namespace horner {
namespace {

std::string refuses_step(const Inputs& in, const State&, const Options& options) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  const std::string why = refuses_any_step(in);
  if (!why.empty()) return why;
  if (options.order > 2) return fmt::format("its order is at most 2, got {}", options.order);
  if (K > 64 || V > 128) return fmt::format("K is at most 64 and V 128, got {} and {}", K, V);
  return refuses_any_power(in, options);
}

Result step(const Inputs& in, const State& state, const Options& options, Saved*) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const std::vector<double> c = series(options);
  const double scale = scale_of(in, options);
  const auto wide = in.v.options().dtype(at::kFloat);
  const at::Tensor q = in.q.stride(3) == 1 ? in.q : in.q.contiguous(),
                   k = in.k.stride(3) == 1 ? in.k : in.k.contiguous(),
                   v = in.v.stride(3) == 1 ? in.v : in.v.contiguous();
  at::Tensor g, S;
  cuda::PowerStep p;
  p.B = q.size(0);
  p.H = int(q.size(2));
  p.G = int(v.size(2));
  p.K = int(q.size(3));
  p.V = int(v.size(3));
  p.order = int(options.order);
  p.features = int(feature_count(p.K, p.order));
  p.c0 = float(c[0]);
  if (c.size() > 1) p.c1 = float(c[1] * scale);
  if (c.size() > 2) p.c2 = float(c[2] * scale * scale);
  p.normalise = options.norm == "sum";
  p.clamps = p.normalise && !options.odd;
  p.eps = float(options.eps);
  p.bf16 = v.scalar_type() == at::kBFloat16;
  p.overlaps = at::cuda::getCurrentDeviceProperties()->major >= 9;
  p.q = q.data_ptr(), p.q_b = q.stride(0), p.q_h = q.stride(2);
  p.k = k.data_ptr(), p.k_b = k.stride(0), p.k_h = k.stride(2);
  p.v = v.data_ptr(), p.v_b = v.stride(0), p.v_h = v.stride(2);
  if (in.g.defined()) {
    g = in.g.to(at::kFloat).contiguous();
    p.g = g.data_ptr<float>();
  }
  if (!state.empty()) {
    S = readable_state(state.parts[0]);
    p.first = S.data_ptr<float>();
  }
  Result y;
  y.o = at::empty({p.B, 1, p.H, p.V}, v.options());
  p.o = y.o.data_ptr();
  if (options.final_state) {
    y.state.parts = {at::empty({p.B, p.G, p.features, p.V + (p.normalise ? 1 : 0)}, wide)};
    p.last = y.state.parts[0].data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::power_step(p, at::cuda::getCurrentCUDAStream(v.device().index())));
  return y;
}

}  // namespace

Form power_step_kernel() {
  return {
      .name = forms::kStepKernel,
      .forward = step,
      .types = {at::kBFloat16, at::kFloat},
      .refuses = refuses_step};
}

}  // namespace horner
