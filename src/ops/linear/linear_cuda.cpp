// The kernels of `linear` under the contract of ops/kernel.h: which sweep computes what.
#include "ops/linear/linear_cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/chunks.h"
#include "ops/linear/operands_cuda.h"
#include "ops/linear/per_key_cuda.h"

namespace horner {
namespace {

using cuda::Crossing;
using cuda::Decay;
using cuda::StateView;
using cuda::Sweep;

// What form = auto takes, as measured on an H200. The chunked kernel beats the others from two tokens on; the recurrent
// one beats the plain chunked form only where that would be many small products.
bool suits_chunked(const Inputs& in) { return in.v.size(1) > 1; }
bool suits_recurrent(const Inputs& in) {
  return in.v.size(1) <= (!in.g.defined() ? 128 : in.g.dim() == 3 ? 256 : 1024);
}

bool per_key(const Inputs& in) { return in.g.defined() && in.g.dim() == 4; }

std::string refuses_any(const Inputs& in, const Options& options) {
  if (!options.causal) return "it is causal";
  if (options.norm != "none") return "it has no normaliser";
  if (options.scale.value_or(1.0) == 0.0) return "scale is 0";
  if (in.v.numel() == 0 || in.q.numel() == 0) return "there is nothing to compute";
  return "";
}

std::string refuses_recurrent(const Inputs& in, const State&, const Options& options) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  const int64_t most = in.v.scalar_type() == at::kDouble ? 128 : 256;  // registers of a block
  if (K > most || V > most) {
    return fmt::format("K and V are at most {}, got {} and {}", most, K, V);
  }
  return refuses_any(in, options);
}

std::string refuses_chunked(const Inputs& in, const State&, const Options& options) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  if (in.v.scalar_type() != at::kBFloat16)
    return c10::str("it computes in bf16, got ", in.v.scalar_type());
  if (K > 128 || V > 128 || K % 8 != 0 || V % 8 != 0)
    return fmt::format("K and V are multiples of 8 up to 128, got {} and {}", K, V);
  const cudaDeviceProp* gpu = at::cuda::getDeviceProperties(in.v.device().index());
  if (per_key(in)) {
    if (gpu->major < 8 || gpu->sharedMemPerBlockOptin < 120 * 1024)
      return "it needs sm_80 or later and 120 KB of shared memory";
  } else if (gpu->major != 9 || gpu->minor != 0)
    return fmt::format("it is made for sm_90a, not sm_{}{}", gpu->major, gpu->minor);
  return refuses_any(in, options);
}

struct Problem {
  at::Tensor q, k, v, g, S0;  // g and S0 in the accumulator's type
  int64_t B, T, H, G, K, V;
  bool chunked;
  Sweep common;  // what every sweep shares
  cudaStream_t stream;

  Problem(const Inputs& in, const State& state, const Options& options, bool is_chunked)
      : B(in.q.size(0)),
        T(in.q.size(1)),
        H(in.q.size(2)),
        G(in.k.size(2)),
        K(in.q.size(3)),
        V(in.v.size(3)),
        chunked(is_chunked),
        stream(at::cuda::getCurrentCUDAStream(in.v.device().index())) {
    const at::ScalarType wide = state_dtype(in);
    q = readable(in.q, chunked);
    k = readable(in.k, chunked);
    v = readable(in.v, chunked);
    if (in.g.defined()) g = in.g.detach().to(wide).contiguous();
    if (!state.empty()) S0 = state.parts[0].detach().to(wide);
    common.B = B;
    common.T = T;
    common.H = H;
    common.scale = options.scale.value_or(1.0);
    common.type = type_of(in.v.scalar_type());
    if (g.defined()) common.g = {g.data_ptr(), g.stride(0), g.stride(1), g.stride(2), int(H / G)};
  }

  at::TensorOptions wide() const {
    return q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }

  // y = sweep of (q, k, v), roles as in the table of linear.cuh.
  Sweep sweep(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& y)
      const {
    Sweep p = common;
    p.R = int(a.size(3));
    p.N = int(c.size(3));
    p.q = rows(a, H);
    p.k = rows(b, H);
    p.v = rows(c, H);
    p.y = rows(y, H);
    p.wide_y = y.scalar_type() != q.scalar_type();
    return p;
  }

  Decay decay(bool transposed) const {
    if (!g.defined()) return Decay::none;
    return g.dim() == 3 ? Decay::head : transposed ? Decay::columns : Decay::rows;
  }
};

template <bool kChunked>
Result forward(const Inputs& in, const State& state, const Options& options) {
  if (kChunked && per_key(in)) return per_key_forward(in, state, options);
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x(in, state, options, kChunked);
  Result y;
  y.o = at::empty({x.B, x.T, x.H, x.V}, x.v.options());
  at::Tensor last;
  if (options.final_state) last = at::empty({x.B, x.G, x.K, x.V}, x.wide());
  Sweep p = x.sweep(x.q, x.k, x.v, y.o);
  p.decay = x.decay(false);
  p.first = view(x.S0, x.H, false);
  p.last = view(last, x.H, false);
  C10_CUDA_CHECK(
      kChunked         ? cuda::chunked_forward(p, x.stream)
      : cuda::steps(p) ? cuda::step(p, x.stream)
                       : cuda::recurrent_sweep(p, x.stream)
  );
  if (options.final_state) y.state.parts = {last};
  y.form = kChunked ? "chunked kernel" : "recurrent kernel";
  return y;
}

at::Tensor recurrent_gate(
    const Problem& x, const at::Tensor& rho, const at::Tensor& kappa, const at::Tensor& X
) {
  const bool per_key = x.g.dim() == 4;
  const int64_t C = per_key ? x.H * x.K : x.H;
  const at::Tensor r = per_key ? rho : rho.sum(-1), k = per_key ? kappa : kappa.sum(-1);
  const at::Tensor g = x.g.repeat_interleave(x.H / x.G, 2);  // (B,T,H) or (B,T,H,K)
  at::Tensor dg = at::empty_like(g), flow_out;
  cuda::Gate p{x.B, x.T, C, r.data_ptr(), k.data_ptr(), g.data_ptr(), nullptr, dg.data_ptr()};
  p.carried = x.S0.defined();
  p.type = x.common.type == cuda::Type::f64 ? cuda::Type::f64 : cuda::Type::f32;
  if (X.defined()) {  // (B,G,K): the first query head of a group carries it
    flow_out = at::zeros({x.B, x.G, x.H / x.G, x.K}, x.wide());
    flow_out.select(2, 0).copy_(X);
    if (!per_key) flow_out = flow_out.sum(-1);
    p.X = flow_out.data_ptr();
  }
  C10_CUDA_CHECK(cuda::recurrent_gate(p, x.stream));
  return grouped(dg, 2, x.G);
}

Crossing crossing(const at::Tensor& flow, const at::Tensor& inner, const at::Tensor& states) {
  Crossing c;
  c.flow = flow.data_ptr<float>();
  if (inner.defined()) c.inner = inner.data_ptr<float>();
  c.state = states.data_ptr<float>();
  return c;
}

template <bool kChunked>
std::vector<at::Tensor> backward(
    const Inputs& in, const State& state, const Options& options, const Result&, const Result& dy
) {
  if (kChunked && per_key(in)) return per_key_backward(in, state, options, dy);
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x(in, state, options, kChunked);
  const at::Tensor out =
      dy.o.defined() ? readable(dy.o, kChunked) : at::zeros({x.B, x.T, x.H, x.V}, x.v.options());
  at::Tensor dS;
  if (!dy.state.parts.empty() && dy.state.parts[0].defined())
    dS = dy.state.parts[0].detach().to(x.wide().dtype());
  const bool gate = x.g.defined(), cross = gate && kChunked, flows = gate && !kChunked;

  const at::TensorOptions summed = x.H == x.G ? x.k.options() : x.wide();
  const at::Tensor dq = at::empty({x.B, x.T, x.H, x.K}, x.q.options());
  const at::Tensor dk = at::empty({x.B, x.T, x.H, x.K}, summed);
  const at::Tensor dv = at::empty({x.B, x.T, x.H, x.V}, summed);
  at::Tensor dS0;
  if (x.S0.defined()) dS0 = at::empty({x.B, x.H, x.K, x.V}, x.wide());
  at::Tensor rho, kappa, inner, S, Z, last;
  if (flows) {
    rho = at::empty({x.B, x.T, x.H, x.K}, x.wide());
    kappa = at::empty_like(rho);
    if (dS.defined()) last = at::empty({x.B, x.G, x.K, x.V}, x.wide());
  }
  const int64_t blocks = (x.K + 63) / 64, padded = x.V <= 64 ? 64 : 128;
  if (cross) {
    const int64_t chunks = (x.T + cuda::kChunk - 1) / cuda::kChunk;
    const int64_t anchors = (chunks - 1) / cuda::kAnchor + 1;
    rho = at::empty({blocks, x.B, x.H, x.T}, x.wide());
    kappa = at::empty_like(rho);
    inner = at::empty_like(rho);
    S = at::empty({x.B, x.H, anchors, blocks, padded, 64}, x.wide());
    Z = at::empty_like(S);
  }

  Sweep p = x.sweep(out, x.v, x.k, dq);  // S^T forward
  p.decay = x.decay(true);
  p.first = view(x.S0, x.H, true);
  p.last = view(last, x.H, true);
  if (gate) p.x = rows(x.q, x.H);
  if (flows) p.flow = rows(rho, x.H);

  Sweep r = x.sweep(x.v, out, x.q, dk);  // Z^T in reverse
  r.reverse = true;
  r.decay = x.decay(true);
  r.first = view(dS, x.H, true);
  if (gate) r.x = rows(x.k, x.H);
  if (flows) r.flow = rows(kappa, x.H);

  Sweep s = x.sweep(x.k, x.q, out, dv);  // Z in reverse
  s.reverse = true;
  s.decay = x.decay(false);
  s.first = view(dS, x.H, false);
  s.last = view(dS0, x.H, false);

  if (kChunked) {
    cuda::Gradient all{p, r, s, {}, {}};
    if (cross) all.rho = crossing(rho, inner, S), all.kappa = crossing(kappa, {}, Z);
    C10_CUDA_CHECK(cuda::chunked_backward(all, x.stream));
  } else {
    for (const Sweep& one : {p, r, s}) C10_CUDA_CHECK(cuda::recurrent_sweep(one, x.stream));
  }

  at::Tensor dg;
  if (flows) {
    const at::Tensor X = dS.defined() ? (dS * last).sum(-1) : dS;  // <dS_T, S_T> by key dim
    dg = recurrent_gate(x, rho, kappa, X);
  }
  if (cross) {
    dg = at::empty({x.B, x.T, x.G}, x.wide());
    const at::Tensor product = at::empty({x.B, x.H, S.size(2)}, x.wide());
    cuda::ChunkedGate c;
    c.B = x.B;
    c.T = x.T;
    c.H = x.H;
    c.group = int(x.H / x.G);
    c.blocks = int(blocks);
    c.rows = int(padded);
    c.scale = float(x.common.scale);
    c.carried = x.S0.defined();
    c.anchors = S.size(2);
    c.rho = crossing(rho, inner, S);
    c.kappa = crossing(kappa, {}, Z);
    c.g = x.common.g;
    c.product = product.data_ptr<float>();
    c.dg = dg.data_ptr<float>();
    C10_CUDA_CHECK(cuda::chunked_gate(c, x.stream));
  }
  if (gate) dg = dg.to(in.g.scalar_type());
  const at::ScalarType type = x.q.scalar_type();
  std::vector<at::Tensor> all = {
      dq, grouped(dk, 2, x.G).to(type), grouped(dv, 2, x.G).to(type), dg};
  if (!state.empty()) all.push_back(grouped(dS0, 1, x.G).to(state.parts[0].scalar_type()));
  return all;
}

}  // namespace

std::vector<Kernel> linear_kernels() {
  return {
      {"chunked kernel", refuses_chunked, forward<true>, backward<true>, suits_chunked, per_key},
      {"recurrent kernel", refuses_recurrent, forward<false>, backward<false>, suits_recurrent},
  };
}

}  // namespace horner
