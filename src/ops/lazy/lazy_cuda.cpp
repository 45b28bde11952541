// The kernels of a lazy step (read.cu, fold.cu), of `linear` and of `power`.
#include "ops/lazy/lazy_cuda.h"

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/lazy/lazy.cuh"
#include "ops/power/power.h"
#include "ops/power/power_cuda.h"
#include "ops/step_cuda.h"

namespace horner {
namespace {

std::string refuses_any(const Inputs& token, const Lazy& lazy) {
  const std::string why = refuses_any_step(token);
  if (!why.empty()) return why;
  const at::ScalarType type = token.v.scalar_type();
  const int64_t K = token.q.size(3), V = token.v.size(3);
  if (type != at::kBFloat16 && type != at::kFloat)
    return c10::str("it computes in bf16 and fp32, got ", type);
  if (token.g.defined() && token.g.scalar_type() != at::kFloat) return "its decays are fp32";
  if (K > cuda::kMostColumns || V > cuda::kMostColumns)
    return fmt::format("K and V are at most {}, got {} and {}", cuda::kMostColumns, K, V);
  const int64_t unit = type == at::kFloat ? 4 : 8;
  if (K % unit != 0 || V % unit != 0)
    return fmt::format("K and V are multiples of {}, got {} and {}", unit, K, V);
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

// What reading and folding share. S must live until the kernel has been launched.
void describe(
    cuda::LazyTokens& p,
    bool series,
    const Inputs& token,
    const Lazy& lazy,
    const Options& options,
    const at::Tensor& S
) {
  p.B = token.k.size(0);
  p.H = int(token.q.size(2));
  p.G = int(token.v.size(2));
  p.K = int(token.k.size(3));
  p.V = int(token.v.size(3));
  p.series = series;
  p.order = p.series ? int(options.order) : 1;
  p.features = p.series ? int(feature_count(p.K, p.order)) : p.K;
  p.normalise = options.norm == "sum";
  p.bf16 = token.v.scalar_type() == at::kBFloat16;
  p.fold = int(lazy.fold);
  p.ring_k = lazy.ring.k.data_ptr();
  p.ring_v = lazy.ring.v.data_ptr();
  if (token.g.defined()) {
    p.gate = token.g.dim() == 4 ? cuda::LazyGate::key : cuda::LazyGate::head;
    p.ring_g = lazy.ring.g.data_ptr<float>();
  }
  if (S.defined()) p.S = S.data_ptr<float>();
  p.overlaps = at::cuda::getCurrentDeviceProperties()->major >= 9;
}
at::Tensor state_of(const Lazy& lazy) {
  return lazy.folded.empty() ? at::Tensor() : readable_state(lazy.folded.parts[0]);
}

template <bool series_op>
at::Tensor read(const Inputs& token, const Lazy& lazy, const Options& options) {
  const c10::cuda::CUDAGuard device(token.v.device());
  const at::Tensor q = readable(token.q, true), k = readable(token.k, true),
                   v = readable(token.v, true);
  const at::Tensor g = token.g.defined() ? token.g.contiguous() : token.g, S = state_of(lazy);
  cuda::LazyRead p;
  describe(p, series_op, token, lazy, options, S);
  p.n = int(lazy.count) + 1;
  p.c1 = float(options.scale.value_or(1.0));
  if (p.series) {
    const std::vector<double> c = series(options);
    const double scale = scale_of(token, options);
    p.c0 = float(c[0]);
    p.c1 = c.size() > 1 ? float(c[1] * scale) : 0.f;
    p.c2 = c.size() > 2 ? float(c[2] * scale * scale) : 0.f;
  }
  p.clamps = p.normalise && !options.odd;
  p.eps = float(options.eps);
  p.q = q.data_ptr(), p.q_b = q.stride(0), p.q_h = q.stride(2);
  p.k = k.data_ptr(), p.k_b = k.stride(0), p.k_h = k.stride(2);
  p.v = v.data_ptr(), p.v_b = v.stride(0), p.v_h = v.stride(2);
  if (g.defined()) p.g = g.data_ptr<float>();
  const at::Tensor o = at::empty({p.B, 1, p.H, p.V}, v.options());
  p.o = o.data_ptr();
  C10_CUDA_CHECK(cuda::lazy_read(p, at::cuda::getCurrentCUDAStream(v.device().index())));
  return o;
}

template <bool series_op>
State fold_ring(const Lazy& lazy, const Options& options) {
  Inputs in = lazy.ring;
  in.q = in.k;
  const c10::cuda::CUDAGuard device(in.v.device());
  const at::Tensor S = state_of(lazy);
  cuda::LazyTokens p;
  describe(p, series_op, in, lazy, options, S);
  p.n = int(lazy.count);
  const at::Tensor next = at::empty(
      {p.B, p.G, p.features, p.V + (p.normalise ? 1 : 0)}, in.v.options().dtype(at::kFloat)
  );
  const auto stream = at::cuda::getCurrentCUDAStream(in.v.device().index());
  C10_CUDA_CHECK(cuda::lazy_fold(p, next.data_ptr<float>(), stream));
  return {{next}};
}

}  // namespace

const Reader* linear_reader() {
  static const Reader reader{refuses_linear, read<false>, fold_ring<false>};
  return &reader;
}

const Reader* power_reader() {
  static const Reader reader{refuses_power, read<true>, fold_ring<true>};
  return &reader;
}

}  // namespace horner
