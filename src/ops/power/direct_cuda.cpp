// `power`, the oracle (direct.cu).
#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/power/power.h"
#include "ops/power/power_cuda.h"

namespace horner {
namespace {

std::string refuses_direct(const Inputs& in, const State& state, const Options& options) {
  if (options.order > 16) return fmt::format("its order is at most 16, got {}", options.order);
  if (in.q.size(3) > 256 || in.v.size(3) > 256)
    return fmt::format("K and V are at most 256, got {} and {}", in.q.size(3), in.v.size(3));
  if (!state.empty() || options.final_state) return "it knows no state";
  return refuses_any_power(in, options);
}

struct Direct {
  at::Tensor q, k, v, G;
  cuda::PowerDirect p;
  cudaStream_t stream;

  Direct(const Inputs& in, const Options& options)
      : stream(at::cuda::getCurrentCUDAStream(in.v.device().index())) {
    q = in.q.detach().contiguous();
    k = in.k.detach().contiguous();
    v = in.v.detach().contiguous();
    const std::vector<double> c = series(options);
    std::copy(c.begin(), c.end(), p.c);
    p.B = q.size(0);
    p.T = q.size(1);
    p.H = q.size(2);
    p.K = int(q.size(3));
    p.V = int(v.size(3));
    p.order = int(options.order);
    p.scale = scale_of(in, options);
    p.eps = options.eps;
    p.normalise = options.norm == "sum";
    p.clamps = p.normalise && !options.odd;
    p.type = type_of(v.scalar_type());
    p.q = rows(q, p.H);
    p.k = rows(k, p.H);
    p.v = rows(v, p.H);
    if (!in.g.defined()) return;
    G = in.g.detach().to(at::kDouble).clamp_min(-1e4).cumsum(1).contiguous();  // e^-10000 is 0
    p.G = G.data_ptr<double>();
    p.g_group = int(p.H / in.g.size(2));
  }
};

Result direct(const Inputs& in, const State&, const Options& options, Saved*) {
  const c10::cuda::CUDAGuard device(in.v.device());
  Direct x(in, options);
  Result y;
  y.o = at::empty({x.p.B, x.p.T, x.p.H, x.p.V}, x.v.options());
  x.p.o = y.o.data_ptr();
  C10_CUDA_CHECK(cuda::power_direct(x.p, x.stream));
  return y;
}

std::vector<at::Tensor> direct_backward(
    const Inputs& in, const State&, const Options& options, const Saved&, const Result& dy
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  Direct x(in, options);
  cuda::PowerDirect& p = x.p;
  const at::ScalarType type = x.v.scalar_type();
  const auto wide = x.v.options().dtype(type == at::kDouble ? at::kDouble : at::kFloat);
  const at::Tensor dO = dy.o.detach().contiguous();
  const at::Tensor dq = at::empty({p.B, p.T, p.H, p.K}, wide), dk = at::empty_like(dq),
                   dv = at::empty({p.B, p.T, p.H, p.V}, wide),
                   scratch = at::empty({2, p.B, p.T, p.H}, wide),
                   flow = at::empty({p.B, p.T, p.H}, wide.dtype(at::kDouble));
  p.dO = rows(dO, p.H);
  p.dq = dq.data_ptr();
  p.dk = dk.data_ptr();
  p.dv = dv.data_ptr();
  p.inverse = scratch[0].data_ptr();
  p.delta = scratch[1].data_ptr();
  p.flow = flow.data_ptr<double>();
  C10_CUDA_CHECK(cuda::power_direct(p, x.stream));
  const int64_t G = in.k.size(2);
  const auto grouped = [&](const at::Tensor& d) { return horner::grouped(d, 2, G); };
  at::Tensor dg;
  if (in.g.defined()) dg = grouped(flow).flip(1).cumsum(1).flip(1).to(in.g.scalar_type());
  return {dq.to(type), grouped(dk).to(type), grouped(dv).to(type), dg};
}

}  // namespace

Form power_direct_kernel() {
  return {
      .name = forms::kDirectKernel,
      .forward = direct,
      .backward = direct_backward,
      .refuses = refuses_direct,
      .suits = never};
}

}  // namespace horner
