// `power` with wide keys, in chunks of many tokens (wide.cuh).
#include <c10/cuda/CUDAGuard.h>

#include "ops/power/wide/problem_cuda.h"

namespace horner {
namespace {

std::string refuses_wide(const Inputs& in, const State&, const Options& options) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  if (options.order > 2) return fmt::format("its order is at most 2, got {}", options.order);
  if (K <= 32 || K > 128 || V > 128 || V % 8 != 0)
    return fmt::format("K is 33 to 128, V a multiple of 8 up to 128, got {} and {}", K, V);
  if (in.g.defined()) return "it has no decay";
  if (in.q.size(1) < 2) return "one token is a step";
  const cudaDeviceProp* gpu = at::cuda::getDeviceProperties(in.v.device().index());
  if (gpu->major != 9 || gpu->minor != 0)
    return fmt::format("it is made for sm_90a, not sm_{}{}", gpu->major, gpu->minor);
  return refuses_any_power(in, options);
}

Result forward(const Inputs& in, const State& state, const Options& options, Saved* saved) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const WideProblem x(in, options);
  const auto [high, low, inverse] = power_parallel_parts(
      {.q = x.chunked(x.q), .k = x.chunked(x.k), .v = x.chunked(in.v.detach())}, x.inside()
  );
  Result y;
  at::Tensor read;
  if (!state.empty() || x.chunks > 1 || options.final_state) {
    const at::Tensor first = state.empty() ? at::Tensor() : x.from_op(state.parts[0], false);
    const auto [S, last] = x.prefix(x.update(x.k, x.v), first, false);
    if (!state.empty() || x.chunks > 1) read = x.read(x.q, S);
    if (options.final_state) y.state.parts = {x.to_op(last, false)};
  }
  y.o = at::empty({x.B, x.T, x.H, x.V}, x.v.options());
  at::Tensor kept;
  if (saved != nullptr && x.normalise)
    (*saved)["kept"] = kept = at::empty({x.B, x.T, x.H, x.V + 1}, x.floats());
  x.finish(high, low, inverse, read, y.o, kept);
  return y;
}

std::vector<at::Tensor> backward(
    const Inputs& in,
    const State& state,
    const Options& options,
    const Saved& saved,
    const Result& dy
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const WideProblem x(in, options);
  const at::Tensor dO =
      dy.o.defined() ? dy.o.detach() : at::zeros({x.B, x.T, x.H, x.V}, x.v.options());
  at::Tensor o = at::zeros({}, x.floats()).expand({x.B, x.T, x.H, x.V}),
             inverse = at::ones({x.B, x.T, x.H, 1}, x.floats());
  // do~ = [do / den, -Delta / den]; -Delta / den is the sum of two bf16
  at::Tensor u = at::zeros({x.B, x.T, x.H, x.columns}, x.v.options());
  u.narrow(3, 0, x.V).copy_(dO);
  if (x.normalise) {
    const at::Tensor kept = saved.get("kept");
    o = kept.narrow(3, 0, x.V);
    const at::Tensor den = kept.narrow(3, x.V, 1), wide = dO.to(at::kFloat);
    const at::Tensor held = den < (options.odd ? -HUGE_VAL : options.eps);  // constant divisor
    inverse = den.where(~held, options.eps).reciprocal();
    const at::Tensor delta = ((wide * o).sum(3, true) * -inverse).where(~held, 0);
    const at::Tensor high = delta.to(at::kBFloat16);
    u.narrow(3, 0, x.V).copy_(wide * inverse);
    u.narrow(3, x.V, 1).copy_(high);
    u.narrow(3, x.V + 1, 1).copy_(delta - high.to(at::kFloat));
    inverse = inverse.where(~held, -inverse);
  }
  const at::Tensor narrow_o = x.chunked(o.to(at::kBFloat16));
  const at::Tensor kept = power_parallel_kept(
      x.chunked((o - x.whole(narrow_o)).to(at::kBFloat16)),
      x.chunked(inverse).squeeze(3).transpose(1, 2)
  );
  const Inputs pairs{.q = x.chunked(x.q), .k = x.chunked(x.k), .v = x.chunked(in.v.detach())};
  const std::vector<at::Tensor> own =
      power_parallel_backward(pairs, x.inside(), narrow_o, kept, x.chunked(dO));
  at::Tensor dq = x.whole(own[0]).to(at::kFloat), dk = x.whole(own[1]).to(at::kFloat),
             dv = x.whole(own[2]).to(at::kFloat), dS0;
  const bool ends = !dy.state.parts.empty() && dy.state.parts[0].defined();
  if (!state.empty() || x.chunks > 1 || ends) {
    const at::Tensor first = state.empty() ? at::Tensor() : x.from_op(state.parts[0], false);
    dq = dq + x.contract(x.q, u, x.prefix(x.update(x.k, x.v), first, false).first);
    const at::Tensor after = ends ? x.from_op(dy.state.parts[0], true) : at::Tensor();
    const auto [Z, left] = x.prefix(x.update(x.q, u), after, true);
    dk = dk + x.contract(x.k, x.v, Z);
    dv = dv + x.read(x.k, Z).narrow(3, 0, x.V);
    if (!state.empty()) dS0 = x.to_op(left, true).to(state.parts[0].scalar_type());
  }
  const auto narrow = [&](const at::Tensor& g, int64_t width) {
    return g.narrow(3, 0, width).to(at::kBFloat16).contiguous();
  };
  std::vector<at::Tensor> all = {narrow(dq, x.K), narrow(dk, x.K), narrow(dv, x.V), at::Tensor()};
  if (dS0.defined()) all.push_back(dS0);
  return all;
}

// True if only this kernel can run the call, or if it was faster than all pairs on an H200, forward and backward.
bool suits(const Inputs& in, const State& state, const Options& options) {
  const int64_t T = in.q.size(1), K = in.q.size(3);
  return !state.empty() || options.final_state || T >= (K <= 64 ? 16384 : 49152);
}

}  // namespace

Form power_wide_kernel() {
  return {
      .name = forms::kWideKernel,
      .forward = forward,
      .backward = backward,
      .types = {at::kBFloat16},
      .refuses = refuses_wide,
      .suits = suits};
}

}  // namespace horner
