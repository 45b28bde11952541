// The kernel of a lazy step (read_state.cu), of `linear` and of `power`.
#include "ops/read_state_cuda.h"

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/power/power.h"
#include "ops/power/power_cuda.h"
#include "ops/read_state.cuh"
#include "ops/step_cuda.h"

namespace horner {
namespace {

std::string refuses_any(const Inputs& token, const Lazy& lazy) {
  const std::string why = refuses_any_step(token, lazy.folded);
  if (!why.empty()) return why;
  const at::ScalarType type = token.v.scalar_type();
  const int64_t K = token.q.size(3), V = token.v.size(3);
  if (type != at::kBFloat16 && type != at::kFloat)
    return c10::str("it computes in bf16 and fp32, got ", type);
  if (token.g.defined() && token.g.scalar_type() != at::kFloat) return "its decays are fp32";
  if (K > cuda::kMostKeysRead || V > 256)
    return fmt::format("K and V are at most 256, got {} and {}", K, V);
  if (lazy.fold > cuda::kMostFold)
    return fmt::format("it folds after {} tokens or earlier, got {}", cuda::kMostFold, lazy.fold);
  return "";
}

std::string refuses_linear(const Inputs& token, const Lazy& lazy, const Options&) {
  return refuses_any(token, lazy);
}

std::string refuses_power(const Inputs& token, const Lazy& lazy, const Options& options) {
  if (options.order > 2) return fmt::format("its order is at most 2, got {}", options.order);
  if (token.q.size(3) > 64) return fmt::format("K is at most 64, got {}", token.q.size(3));
  if (token.g.defined() && token.g.dim() == 4) return "its decay is per head";
  const std::string why = refuses_any_power(token, options);
  return why.empty() ? refuses_any(token, lazy) : why;
}

at::Tensor read(const Inputs& token, const Lazy& lazy, const Options& options, cuda::ReadState p) {
  const c10::cuda::CUDAGuard device(token.v.device());
  const auto readable = [](const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); };
  const at::Tensor q = readable(token.q), k = readable(token.k), v = readable(token.v);
  at::Tensor g, S;
  p.B = q.size(0);
  p.H = int(q.size(2));
  p.G = int(v.size(2));
  p.K = int(q.size(3));
  p.V = int(v.size(3));
  p.n = int(lazy.count) + 1;
  p.fold = int(lazy.fold);
  p.normalise = options.norm == "sum";
  p.clamps = p.normalise && !options.odd;
  p.eps = float(options.eps);
  p.bf16 = v.scalar_type() == at::kBFloat16;
  p.q = q.data_ptr(), p.q_b = q.stride(0), p.q_h = q.stride(2);
  p.k = k.data_ptr(), p.k_b = k.stride(0), p.k_h = k.stride(2);
  p.v = v.data_ptr(), p.v_b = v.stride(0), p.v_h = v.stride(2);
  p.ring_k = lazy.ring.k.data_ptr();
  p.ring_v = lazy.ring.v.data_ptr();
  if (token.g.defined()) {
    g = token.g.contiguous();
    p.gate = g.dim() == 4 ? cuda::Gate::key : cuda::Gate::head;
    p.g = g.data_ptr<float>();
    p.ring_g = lazy.ring.g.data_ptr<float>();
  }
  if (!lazy.folded.empty()) {
    S = readable_state(lazy.folded.parts[0]);
    p.S = S.data_ptr<float>();
  }
  const at::Tensor o = at::empty({p.B, 1, p.H, p.V}, v.options());
  p.o = o.data_ptr();
  C10_CUDA_CHECK(cuda::read_state(p, at::cuda::getCurrentCUDAStream(v.device().index())));
  return o;
}

at::Tensor read_linear(const Inputs& token, const Lazy& lazy, const Options& options) {
  cuda::ReadState p;
  p.features = int(token.q.size(3));
  p.c1 = float(options.scale.value_or(1.0));
  return read(token, lazy, options, p);
}

at::Tensor read_power(const Inputs& token, const Lazy& lazy, const Options& options) {
  const std::vector<double> c = series(options);
  const double scale = scale_of(token, options);
  cuda::ReadState p;
  p.series = true;
  p.order = int(options.order);
  p.features = int(feature_count(token.q.size(3), options.order));
  p.c0 = float(c[0]);
  if (c.size() > 1) p.c1 = float(c[1] * scale);
  if (c.size() > 2) p.c2 = float(c[2] * scale * scale);
  return read(token, lazy, options, p);
}

}  // namespace

Reader linear_reader() { return {refuses_linear, read_linear}; }
Reader power_reader() { return {refuses_power, read_power}; }

}  // namespace horner
