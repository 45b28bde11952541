// `delta`, one token at a time (step.cu).
#include "ops/step_cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "cuda/tensors.h"
#include "ops/delta/delta.cuh"
#include "ops/delta/delta_cuda.h"

namespace horner {
namespace {

std::string refuses_step(const Inputs& in, const State&, const Options&) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  const std::string why = refuses_any_step(in);
  if (!why.empty()) return why;
  if (K > 256) return fmt::format("K is at most 256, got {}", K);
  if (V % 4 != 0) return fmt::format("V is a multiple of 4, got {}", V);
  return "";
}

Result step(const Inputs& in, const State& state, const Options& options, Saved*) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const at::Tensor q = readable(in.q, false), k = readable(in.k, false), v = readable(in.v, false);
  const at::Tensor beta = in.beta.detach().to(at::kFloat).contiguous();
  const int64_t B = q.size(0), H = q.size(2), G = k.size(2), K = q.size(3), V = v.size(3);
  at::Tensor g, S;
  cuda::DeltaStep p;
  p.B = B;
  p.G = int(G);
  p.K = int(K);
  p.V = int(V);
  p.scale = options.scale.value_or(1.0);
  p.type = type_of(v.scalar_type());
  p.q = rows(q, H);
  p.k = rows(k, H);
  p.v = rows(v, H);
  p.beta = beta.data_ptr<float>();
  if (in.g.defined()) {
    g = in.g.detach().to(at::kFloat).contiguous();
    p.g = g.data_ptr<float>();
    p.per_key = g.dim() == 4;
  }
  if (!state.empty()) {
    S = readable_state(state.parts[0]);
    p.first = S.data_ptr<float>();
  }
  Result y;
  y.o = at::empty({B, 1, H, V}, v.options());
  p.o = y.o.data_ptr();
  if (options.final_state) {
    y.state.parts = {at::empty({B, G, K, V}, v.options().dtype(at::kFloat))};
    p.last = y.state.parts[0].data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::delta_step(p, at::cuda::getCurrentCUDAStream(v.device().index())));
  return y;
}

}  // namespace

Form delta_step_kernel() {
  return {
      .name = forms::kStepKernel,
      .forward = step,
      .types = {at::kFloat, at::kBFloat16, at::kHalf},
      .refuses = refuses_step};
}

}  // namespace horner
