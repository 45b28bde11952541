// `power` over all pairs (parallel.cu).
#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/power/power.h"
#include "ops/power/power_cuda.h"

namespace horner {
namespace {

std::string refuses_parallel(const Inputs& in, const State& state, const Options& options) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  if (options.order > 10) return fmt::format("its order is at most 10, got {}", options.order);
  if (K > 128 || V > 128 || K % 8 != 0 || V % 8 != 0)
    return fmt::format("K and V are multiples of 8 up to 128, got {} and {}", K, V);
  if (in.g.defined() && (K > 64 || V > 64))
    return fmt::format("with a decay K and V are at most 64, got {} and {}", K, V);
  if (!state.empty() || options.final_state) return "it knows no state";
  const cudaDeviceProp* gpu = at::cuda::getDeviceProperties(in.v.device().index());
  if (gpu->major != 9 || gpu->minor != 0)
    return fmt::format("it is made for sm_90a, not sm_{}{}", gpu->major, gpu->minor);
  return refuses_any_power(in, options);
}

struct Problem {
  at::Tensor q, k, v, since, before;
  cuda::PowerParallel p;
  cudaStream_t stream;

  Problem(const Inputs& in, const Options& options)
      : q(readable(in.q, true)),
        k(readable(in.k, true)),
        v(readable(in.v, true)),
        stream(at::cuda::getCurrentCUDAStream(in.v.device().index())) {
    const std::vector<double> c = series(options);
    double power = 1;
    for (size_t n = 0; n < c.size(); ++n, power *= scale_of(in, options))
      p.c[n] = float(c[n] * power);
    p.B = q.size(0);
    p.T = q.size(1);
    p.H = q.size(2);
    p.padded = (p.T + 63) / 64 * 64;
    p.processors = at::cuda::getDeviceProperties(in.v.device().index())->multiProcessorCount;
    p.K = int(q.size(3));
    p.V = int(v.size(3));
    p.order = int(options.order);
    p.eps = float(options.eps);
    p.normalise = options.norm == "sum";
    p.clamps = p.normalise && !options.odd;
    p.q = rows(q, p.H);
    p.k = rows(k, p.H);
    p.v = rows(v, p.H);
    if (!in.g.defined()) return;
    // log2 is at least -127. So a reset (g = -inf) stays finite, and no difference of two sums is NaN.
    const int64_t G = in.g.size(2), blocks = p.padded / 64;
    const at::Tensor g = (in.g.detach().to(at::kDouble) * M_LOG2E).clamp_min(-127.0);
    const at::Tensor local = at::constant_pad_nd(g.transpose(1, 2), {0, p.padded - p.T})
                                 .view({p.B, G, blocks, 64})
                                 .cumsum(3);
    before = at::constant_pad_nd(local.select(3, 63).cumsum(2), {1, -1}).contiguous();
    since = local.to(at::kFloat);
    p.before = before.data_ptr<double>();
    p.since = since.data_ptr<float>();
    p.g_group = int(p.H / G);
  }

  // dg_i = sum_{t>=i} dG_t, for each group of heads.
  at::Tensor gate_gradient(const at::Tensor& sums, const at::Tensor& g) const {
    const at::Tensor dG = (sums[0] - sums[1]).narrow(2, 0, p.T).to(at::kDouble);
    const at::Tensor dg = dG.unflatten(1, {g.size(2), p.g_group}).sum(2).flip(2).cumsum(2).flip(2);
    return dg.transpose(1, 2).to(g.scalar_type()).contiguous();
  }
};

// What the backward reads besides o, in one tensor: the rounding error of o, bf16 (B,T,H,V), then 1 / den (B,H,padded).
void use_kept(cuda::PowerParallel& p, const at::Tensor& kept) {
  const int64_t half = p.B * p.T * p.H * p.V / 2;
  const at::Tensor rest = kept.narrow(0, 0, half).view(at::kBFloat16);
  p.o_rest = rows(rest.view({p.B, p.T, p.H, p.V}), p.H);
  p.inverse = kept.data_ptr<float>() + half;
}

Result forward(const Inputs& in, const State&, const Options& options, Saved* saved) {
  const c10::cuda::CUDAGuard device(in.v.device());
  Problem x(in, options);
  Result y;
  y.o = at::empty({x.p.B, x.p.T, x.p.H, x.p.V}, x.v.options());
  if (saved != nullptr) {
    const int64_t size = x.p.B * x.p.H * (x.p.padded + x.p.T * x.p.V / 2);
    const at::Tensor kept = at::empty({size}, x.v.options().dtype(at::kFloat));
    use_kept(x.p, kept);
    (*saved)["kept"] = kept;
    (*saved)["o"] = y.o;
  }
  x.p.o = rows(y.o, x.p.H);
  C10_CUDA_CHECK(cuda::power_parallel_forward(x.p, x.stream));
  return y;
}

std::vector<at::Tensor> backward(
    const Inputs& in, const State&, const Options& options, const Saved& saved, const Result& dy
) {
  return power_parallel_backward(in, options, saved.get("o"), saved.get("kept"), dy.o);
}

}  // namespace

std::vector<at::Tensor> power_parallel_backward(
    const Inputs& in,
    const Options& options,
    const at::Tensor& given,
    const at::Tensor& kept,
    const at::Tensor& do_given
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  Problem x(in, options);
  cuda::PowerParallel& p = x.p;
  const int64_t G = x.k.size(2);
  const at::Tensor o = readable(given, true), dO = readable(do_given, true);
  p.wide = G != p.H;
  const auto own = x.q.options(), wide = own.dtype(at::kFloat);
  const at::Tensor dq = at::empty({p.B, p.T, p.H, p.K}, own),
                   dk = at::empty({p.B, p.T, p.H, p.K}, p.wide ? wide : own),
                   dv = at::empty({p.B, p.T, p.H, p.V}, p.wide ? wide : own),
                   scratch = at::empty({2, p.B, p.H, p.padded}, wide);
  p.o = rows(o, p.H);
  p.dO = rows(dO, p.H);
  p.dq = rows(dq, p.H);
  p.dk = rows(dk, p.H);
  p.dv = rows(dv, p.H);
  use_kept(p, kept);
  p.factor = scratch[0].data_ptr<float>();
  p.delta = scratch[1].data_ptr<float>();
  at::Tensor sums;
  if (in.g.defined()) {
    sums = at::empty({2, p.B, p.H, p.padded}, wide);
    p.early = sums[0].data_ptr<float>();
    p.late = sums[1].data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::power_parallel_backward(p, x.stream));
  const auto grouped = [&](const at::Tensor& d) {
    return p.wide ? d.unflatten(2, {G, p.H / G}).sum(3).to(at::kBFloat16) : d;
  };
  return {
      dq, grouped(dk), grouped(dv), in.g.defined() ? x.gate_gradient(sums, in.g) : at::Tensor()};
}

PowerParts power_parallel_parts(const Inputs& in, const Options& options) {
  Saved saved;
  const at::Tensor o = forward(in, {}, options, &saved).o, kept = saved.get("kept");
  const int64_t half = o.numel() / 2;
  return {
      o,
      kept.narrow(0, 0, half).view(at::kBFloat16).view_as(o),
      kept.narrow(0, half, kept.numel() - half)};
}

at::Tensor power_parallel_kept(const at::Tensor& rest, const at::Tensor& inverse) {
  return at::cat({rest.contiguous().flatten().view(at::kFloat), inverse.flatten()});
}

Form power_parallel_kernel() {
  return {
      .name = forms::kParallelKernel,
      .forward = forward,
      .backward = backward,
      .types = {at::kBFloat16},
      .refuses = refuses_parallel};
}

}  // namespace horner
