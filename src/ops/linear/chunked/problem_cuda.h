// A call of `linear`, prepared for its sweeps.
#pragma once

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include "cuda/device.h"
#include "cuda/invariant.h"
#include "cuda/tensors.h"
#include "ops/chunks.h"
#include "ops/linear/exponential_gate.h"
#include "ops/linear/linear.cuh"

namespace horner::linear_sweeps {

struct Problem {
  at::Tensor q, k, v, g, S0;  // g and S0 in the accumulator's type
  at::Tensor z0;              // norm = sum: the last column of the state
  // With the exponential gate: e^gain and the floor (B,heads,T), T padded to whole chunks. g is then (B,T,G,2): log-decay
  // and gain, the log weight of the key.
  at::Tensor gain, floor, m;
  int64_t B, T, H, G, K, V;
  bool chunked, sum;
  double eps;
  int parts = 1;       // of the time
  cuda::Sweep common;  // what every sweep shares
  cudaStream_t stream;

  Problem(const Inputs& in, const State& state, const Options& options, bool is_chunked)
      : B(in.q.size(0)),
        T(in.q.size(1)),
        H(in.q.size(2)),
        G(in.k.size(2)),
        K(in.q.size(3)),
        V(in.v.size(3)),
        chunked(is_chunked),
        sum(options.norm != "none"),
        eps(options.eps),
        stream(at::cuda::getCurrentCUDAStream(in.v.device().index())) {
    const at::ScalarType wide = state_dtype(in);
    q = keys(in.q);
    k = keys(in.k);
    v = readable(in.v, chunked);
    if (in.i.defined()) {
      const Stabilised x = stabilise(in, state);
      g = at::stack({x.g.detach(), x.gain.detach()}, -1);
      gain = by_chunks(x.gain.detach().exp());
      floor = by_chunks(x.floor.repeat_interleave(H / G, 2));
      m = x.last;
    } else if (in.g.defined()) {
      g = in.g.detach().to(wide).contiguous();
    }
    if (!state.empty()) S0 = state.parts[0].detach().to(wide);
    if (sum && S0.defined()) {
      z0 = S0.select(-1, V);
      S0 = S0.narrow(-1, 0, V);
    }
    common.B = B;
    common.T = T;
    common.H = H;
    common.scale = options.scale.value_or(1.0);
    common.type = type_of(in.v.scalar_type());
    if (g.defined()) common.g = {g.data_ptr(), g.stride(0), g.stride(1), g.stride(2), int(H / G)};
    common.gains = gated();
    if (chunked) parts = cuda::time_parts(B * H * ((V + 63) / 64), cuda::processors(), chunks());
    common.parts = parts;
  }

  // (B,T,heads) -> (B,heads,T), padded with 1 to whole chunks.
  at::Tensor by_chunks(const at::Tensor& x) const {
    const at::Tensor y = x.transpose(1, 2);
    return at::constant_pad_nd(y, {0, chunks() * cuda::kChunk - T}, 1.0).contiguous();
  }

  // q or k. The chunked kernel reads heads that expand made from one where they are.
  at::Tensor keys(const at::Tensor& x) const {
    if (!chunked || sum || !one_head(x)) return readable(x, chunked);
    return readable(x.narrow(2, 0, 1), true).expand_as(x);
  }
  // A tensor map takes no stride of 0: there all of `heads` read one head.
  cuda::Rows tokens(const at::Tensor& x, int64_t heads) const {
    cuda::Rows all = rows(x, heads);
    if (chunked && one_head(x)) all.group = int(heads);
    return all;
  }

  bool gated() const { return floor.defined(); }
  int64_t chunks() const { return (T + cuda::kChunk - 1) / cuda::kChunk; }
  int64_t width() const { return (K + 63) / 64 * 64; }  // of the sums

  at::TensorOptions wide() const {
    return q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }

  // y = sweep of (q, k, v), roles as in the table of linear.cuh.
  cuda::Sweep sweep(
      const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& y
  ) const {
    cuda::Sweep p = common;
    p.R = int(a.size(3));
    p.N = int(c.size(3));
    p.q = tokens(a, H);
    p.k = tokens(b, H);
    p.v = tokens(c, H);
    p.y = rows(y, H);
    p.wide_y = y.scalar_type() != q.scalar_type();
    return p;
  }

  // The states (parts,B,heads,K,V) that enter the parts of the sweep whose state adds a^T c; undefined with one part.
  at::Tensor entering(
      const at::Tensor& a,
      const at::Tensor& c,
      const at::Tensor& first,
      bool reverse,
      at::Tensor states = {}
  ) const {
    if (parts == 1) return {};
    if (!states.defined()) states = at::empty({parts, B, a.size(2), K, V}, wide());
    cuda::Sweep p = common;
    p.H = a.size(2);
    p.R = int(K);
    p.N = int(V);
    p.reverse = reverse;
    p.decay = decay(false);
    p.k = tokens(a, p.H);
    p.v = tokens(c, p.H);
    p.g.group = int(p.H / G);
    p.first = view(first, p.H, false);
    const at::Tensor decays = at::empty({parts, B, p.H}, wide());
    p.entering = part_views(states, p.H, false);
    if (g.defined()) p.decays = decays.data_ptr<float>();
    C10_CUDA_CHECK(cuda::chunked_entering(p, stream));
    return states;
  }

  // norm = sum: fills sums (chunks+2,B,heads,width) with the sums of factor x. first (B,G,K): what enters the first chunk.
  void fill_sums(
      const at::Tensor& sums,
      const at::Tensor& x,
      const at::Tensor& factor,
      const at::Tensor& first,
      bool reverse
  ) const {
    cuda::Sums p;
    p.B = B;
    p.T = T;
    p.heads = x.size(2);
    p.K = int(K);
    p.width = int(width());
    p.reverse = reverse;
    p.x = rows(x, p.heads);
    p.sums = sums.data_ptr<float>();
    if (factor.defined()) p.factor = factor.data_ptr<float>();
    at::Tensor decays;
    if (g.defined()) {
      decays = at::empty({chunks() + 2, B, p.heads}, wide());
      p.g = common.g;
      p.g.group = int(p.heads / G);
      p.decays = decays.data_ptr<float>();
    }
    sums[0].zero_();
    if (first.defined())  // once per state
      sums[0].view({B, G, p.heads / G, p.width}).select(2, 0).narrow(-1, 0, K).copy_(first);
    C10_CUDA_CHECK(cuda::chunk_sums(p, stream));
  }

  cuda::Normaliser normaliser(const at::Tensor& sums, const at::Tensor& shift) const {
    cuda::Normaliser n;
    n.sums = sums.data_ptr<float>();
    n.heads = int(sums.size(2));
    n.width = int(width());
    n.eps = float(eps);
    if (shift.defined()) n.shift = shift.data_ptr<float>();
    if (floor.defined() && !shift.defined()) n.floor = floor.data_ptr<float>();
    return n;
  }

  static cuda::StateView part_views(const at::Tensor& states, int64_t heads, bool transposed) {
    if (!states.defined()) return {};
    cuda::StateView all = view(states.select(0, 0), heads, transposed);
    all.part = states.stride(0);
    return all;
  }

  cuda::Decay decay(bool transposed) const {
    using cuda::Decay;
    if (!g.defined()) return Decay::none;
    return g.dim() == 3 || gated() ? Decay::head : transposed ? Decay::columns : Decay::rows;
  }
};

// What the forward keeps for the backward, as views of one tensor.
struct Kept {
  at::Tensor all;
  at::Tensor entering;  // (parts,B,G,K,V): the states that enter the parts of the time
  // norm = sum; rest and den only if a gradient is wanted.
  at::Tensor sums;  // (chunks+2,B,G,width)
  at::Tensor rest;  // (B,T,H,V) bf16: the rounding error of o
  at::Tensor den;   // (B,H,T)

  // given: what a forward kept; undefined: allocates it.
  Kept(const Problem& x, const at::Tensor& given, bool gradient) : all(given) {
    const int64_t states = x.parts > 1 ? x.parts * x.B * x.G * x.K * x.V : 0;
    const int64_t sizes = x.sum ? (x.chunks() + 2) * x.B * x.G * x.width() : 0;
    const int64_t tokens = x.sum && gradient ? x.B * x.T * x.H : 0, rests = tokens * x.V / 2;
    if (states + sizes == 0) return;
    if (!all.defined()) all = at::empty({states + sizes + rests + tokens}, x.wide());
    const auto part = [&](int64_t from, int64_t size) { return all.narrow(0, from, size); };
    if (states > 0) entering = part(0, states).view({x.parts, x.B, x.G, x.K, x.V});
    if (sizes > 0) sums = part(states, sizes).view({x.chunks() + 2, x.B, x.G, x.width()});
    if (tokens == 0) return;
    rest = part(states + sizes, rests).view(at::kBFloat16).view({x.B, x.T, x.H, x.V});
    den = part(states + sizes + rests, tokens).view({x.B, x.H, x.T});
  }
};

}  // namespace horner::linear_sweeps
