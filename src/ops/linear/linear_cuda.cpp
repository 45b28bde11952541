// The kernels of `linear`: which sweep computes what.
#include "ops/linear/linear_cuda.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "ops/linear/chunked/problem_cuda.h"
#include "ops/linear/per_key/per_key_cuda.h"

namespace horner {
namespace {

using cuda::Sweep;
using linear_sweeps::Kept;
using linear_sweeps::Problem;

// What form = auto takes, measured on an H200. The chunked kernel is fastest from two tokens on. The recurrent kernel beats
// the plain chunked form only for short sequences.
bool suits_chunked(const Inputs& in, const State&, const Options&) { return in.v.size(1) > 1; }
bool suits_recurrent(const Inputs& in, const State&, const Options&) {
  return in.v.size(1) <= (!in.g.defined() ? 128 : in.g.dim() == 3 ? 256 : 1024);
}

bool per_key(const Inputs& in) { return in.g.defined() && in.g.dim() == 4; }

std::string refuses_any(const Inputs& in, const Options& options) {
  if (!options.causal) return "it is causal";
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
  if (options.norm != "none") return "it has no normaliser";
  return refuses_any(in, options);
}

std::string refuses_chunked(const Inputs& in, const State& state, const Options& options) {
  if (state.parts.size() > 1 && state.parts[1].requires_grad()) return "m has no gradient";
  const int64_t K = in.q.size(3), V = in.v.size(3);
  const int64_t most = per_key(in) ? 128 : 512;
  if (K > 128 || V > most || K % 8 != 0 || V % 8 != 0) {
    return fmt::format("K and V are multiples of 8 up to 128 and {}, got {} and {}", most, K, V);
  }
  const cudaDeviceProp* gpu = at::cuda::getDeviceProperties(in.v.device().index());
  if (per_key(in)) {
    if (gpu->major < 8 || gpu->sharedMemPerBlockOptin < 120 * 1024)
      return "it needs sm_80 or later and 120 KB of shared memory";
  } else if (gpu->major != 9 || gpu->minor != 0)
    return fmt::format("it is made for sm_90a, not sm_{}{}", gpu->major, gpu->minor);
  if (options.norm != "none" && per_key(in)) return "with a decay per key it has no normaliser";
  if (options.log_norm) return "it returns no log of the normaliser";
  return refuses_any(in, options);
}

template <bool kChunked>
Result forward(const Inputs& in, const State& state, const Options& options, Saved* saved) {
  if (kChunked && per_key(in)) return per_key_forward(in, state, options, saved);
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x(in, state, options, kChunked);
  const Kept kept(x, {}, saved != nullptr);
  Result y;
  y.o = at::empty({x.B, x.T, x.H, x.V}, x.v.options());
  at::Tensor last;
  if (options.final_state) last = at::empty({x.B, x.G, x.K, x.V + (x.sum ? 1 : 0)}, x.wide());
  Sweep p = x.sweep(x.q, x.k, x.v, y.o);
  p.decay = x.decay(false);
  p.first = view(x.S0, x.H, false);
  p.last = view(last, x.H, false);  // one more column only changes the strides
  x.entering(x.k, x.v, x.S0, false, kept.entering);
  p.entering = x.part_views(kept.entering, x.H, false);
  if (x.sum) {
    x.fill_sums(kept.sums, x.k, x.gain, x.z0, false);
    p.norm = x.normaliser(kept.sums, {});
    if (kept.den.defined()) {
      p.norm.den = kept.den.data_ptr<float>();
      p.norm.rest = rows(kept.rest, x.H);
    }
    if (last.defined()) last.select(-1, x.V).copy_(kept.sums[-1].narrow(-1, 0, x.K));
  }
  C10_CUDA_CHECK(
      kChunked         ? cuda::chunked_forward(p, x.stream)
      : cuda::steps(p) ? cuda::step(p, x.stream)
                       : cuda::recurrent_sweep(p, x.stream)
  );
  if (options.final_state) y.state.parts = {last};
  if (options.final_state && x.m.defined()) y.state.parts.push_back(x.m);
  if (saved != nullptr) (*saved)["kept"] = kept.all;
  if (saved != nullptr && x.sum) (*saved)["o"] = y.o;
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
  cuda::GateGradient p{
      x.B, x.T, C, r.data_ptr(), k.data_ptr(), g.data_ptr(), nullptr, dg.data_ptr()};
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

// What the three sweeps of the gradient read and write, for all values or for a block of values.
struct Gradients {
  at::Tensor v, out, S0, dS;  // out: gradient of o
  at::Tensor S_in, Z_in;      // states that enter the parts of the time
  at::Tensor dq, dk, dv, dS0;
  // norm = sum: the sums of k, Delta (blocks,B,H,T), and the last columns (B,G,K) of dS and (B,H,K) of dS0.
  at::Tensor sums, shift, dz, dz0;
  at::Tensor di;  // (B,T,G): of the exponential gate

  Gradients values(int64_t first, int64_t count) const {
    Gradients some = *this;
    for (at::Tensor* x :
         {&some.v, &some.out, &some.S0, &some.dS, &some.S_in, &some.Z_in, &some.dv, &some.dS0}) {
      if (x->defined()) *x = x->narrow(-1, first, count);
    }
    if (shift.defined()) some.shift = shift[first / 128];
    if (first > 0) some.dz = at::Tensor();
    return some;
  }
};

cuda::Gradient sweeps(const Problem& x, const Gradients& in) {
  Sweep dq = x.sweep(in.out, in.v, x.k, in.dq);  // S^T forward
  dq.decay = x.decay(true);
  dq.first = view(in.S0, x.H, true);
  dq.entering = x.part_views(in.S_in, x.H, true);

  Sweep dk = x.sweep(in.v, in.out, x.q, in.dk);  // Z^T in reverse
  dk.reverse = true;
  dk.decay = x.decay(true);
  dk.first = view(in.dS, x.H, true);
  dk.entering = x.part_views(in.Z_in, x.H, true);

  Sweep dv = x.sweep(x.k, x.q, in.out, in.dv);  // Z in reverse
  dv.reverse = true;
  dv.decay = x.decay(false);
  dv.first = view(in.dS, x.H, false);
  dv.last = view(in.dS0, x.H, false);
  dv.entering = x.part_views(in.Z_in, x.H, false);

  if (x.g.defined()) {
    dq.x = x.tokens(x.q, x.H);
    dk.x = x.tokens(x.k, x.H);
  }
  return {dq, dk, dv, {}, {}};
}

// recurrent_sweeps and chunked_sweeps return the gradient of g; undefined without a decay.
at::Tensor recurrent_sweeps(const Problem& x, const Gradients& in) {
  cuda::Gradient all = sweeps(x, in);
  at::Tensor rho, kappa, last;
  if (x.g.defined()) {
    rho = at::empty({x.B, x.T, x.H, x.K}, x.wide());
    kappa = at::empty_like(rho);
    all.dq.flow = rows(rho, x.H);
    all.dk.flow = rows(kappa, x.H);
    if (in.dS.defined()) last = at::empty({x.B, x.G, x.K, x.V}, x.wide());
    all.dq.last = view(last, x.H, true);
  }
  for (const Sweep& one : {all.dq, all.dk, all.dv})
    C10_CUDA_CHECK(cuda::recurrent_sweep(one, x.stream));
  if (!x.g.defined()) return {};
  const at::Tensor X = in.dS.defined() ? (in.dS * last).sum(-1) : in.dS;  // <dS_T, S_T> by key dim
  return recurrent_gate(x, rho, kappa, X);
}

at::Tensor chunked_sweeps(const Problem& x, const Gradients& in, bool add) {
  cuda::Gradient all = sweeps(x, in);
  all.dq.add_y = all.dk.add_y = add;
  at::Tensor zeta;
  if (x.sum) {
    zeta = at::empty({x.chunks() + 2, x.B, x.H, x.width()}, x.wide());
    x.fill_sums(zeta, x.q, in.shift, in.dz.defined() ? in.dz / -x.common.scale : in.dz, true);
    all.dq.norm = x.normaliser(in.sums, in.shift);
    all.dk.norm = x.normaliser(zeta, in.shift);
    if (in.dz0.defined()) in.dz0.sub_(zeta[-1].narrow(-1, 0, x.K), x.common.scale);
  }
  if (!x.g.defined()) {
    C10_CUDA_CHECK(cuda::chunked_backward(all, x.stream));
    return {};
  }
  const int64_t blocks = (x.K + 63) / 64, padded = in.v.size(3) <= 64 ? 64 : 128;
  const int each = x.sum ? cuda::kSumAnchor : cuda::kAnchor;
  const int64_t anchors = (x.chunks() - 1) / each + 1;
  const at::Tensor flows = at::empty({x.gated() ? 4 : 3, blocks, x.B, x.H, x.T}, x.wide());
  const at::Tensor states = at::empty({2, x.B, x.H, anchors, blocks, padded, 64}, x.wide());
  const auto part = [](const at::Tensor& all_of, int64_t i) { return all_of[i].data_ptr<float>(); };
  all.rho = {part(flows, 0), part(flows, 1), nullptr, part(states, 0)};
  all.kappa = {part(flows, 2), nullptr, nullptr, part(states, 1)};
  if (x.gated()) all.kappa.whole = part(flows, 3);
  C10_CUDA_CHECK(cuda::chunked_backward(all, x.stream));
  if (x.gated()) in.di.add_(grouped(flows[3].sum(0).transpose(1, 2), 2, x.G));

  const at::Tensor dg = at::empty({x.B, x.T, x.G}, x.wide());
  const at::Tensor product = at::empty({x.B, x.H, anchors}, x.wide());
  cuda::ChunkedGate c;
  c.B = x.B;
  c.T = x.T;
  c.H = x.H;
  c.group = int(x.H / x.G);
  c.blocks = int(blocks);
  c.rows = int(padded);
  c.scale = float(x.common.scale);
  c.carried = x.S0.defined();
  c.anchors = anchors;
  c.each = each;
  c.rho = all.rho;
  c.kappa = all.kappa;
  c.g = x.common.g;
  c.z = all.dq.norm;
  c.zeta = all.dk.norm;
  c.product = product.data_ptr<float>();
  c.dg = dg.data_ptr<float>();
  C10_CUDA_CHECK(cuda::chunked_gate(c, x.stream));
  return dg;
}

// Replaces the gradient of o by that of the numerator: do' instead of do, and Delta.
void divide_gradient(const Problem& x, const Kept& kept, const at::Tensor& o, Gradients& all) {
  const at::Tensor divided = at::empty({x.B, x.T, x.H, x.V}, x.v.options());
  const at::Tensor from = readable(o, true);
  all.sums = kept.sums;
  all.shift = at::empty({(x.V + 127) / 128, x.B, x.H, x.chunks() * cuda::kChunk}, x.wide());
  cuda::DividedGradient p;
  p.B = x.B;
  p.T = x.T;
  p.H = x.H;
  p.V = int(x.V);
  p.eps = float(x.eps);
  p.out = rows(all.out, x.H);
  p.o = rows(from, x.H);
  p.rest = rows(kept.rest, x.H);
  p.divided = rows(divided, x.H);
  p.den = kept.den.data_ptr<float>();
  if (x.floor.defined()) p.floor = x.floor.data_ptr<float>();
  p.shift = all.shift.data_ptr<float>();
  C10_CUDA_CHECK(cuda::divide_gradient(p, x.stream));
  all.out = divided;
  if (all.dS.defined()) {
    all.dz = all.dS.select(-1, x.V);
    all.dS = all.dS.narrow(-1, 0, x.V);
  }
  if (all.dS0.defined()) {
    all.dz0 = all.dS0.select(-1, x.V).zero_();
    all.dS0 = all.dS0.narrow(-1, 0, x.V);
  }
}

template <bool kChunked>
std::vector<at::Tensor> backward(
    const Inputs& in,
    const State& state,
    const Options& options,
    const Saved& saved,
    const Result& dy
) {
  if (kChunked && per_key(in)) return per_key_backward(in, state, options, saved, dy);
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x(in, state, options, kChunked);
  const at::TensorOptions summed = x.H == x.G ? x.k.options() : x.wide();
  Gradients all;
  all.v = x.v;
  all.S0 = x.S0;
  all.out =
      dy.o.defined() ? readable(dy.o, kChunked) : at::zeros({x.B, x.T, x.H, x.V}, x.v.options());
  if (!dy.state.parts.empty() && dy.state.parts[0].defined())
    all.dS = dy.state.parts[0].detach().to(x.wide().dtype());
  all.dq = at::empty({x.B, x.T, x.H, x.K}, x.q.options());
  all.dk = at::empty({x.B, x.T, x.H, x.K}, summed);
  all.dv = at::empty({x.B, x.T, x.H, x.V}, summed);
  at::Tensor dS0, dg;
  if (x.S0.defined()) dS0 = at::empty({x.B, x.H, x.K, x.V + (x.sum ? 1 : 0)}, x.wide());
  all.dS0 = dS0;
  if (x.gated()) all.di = at::zeros({x.B, x.T, x.G}, x.wide());
  if (kChunked) {
    const Kept kept(x, saved.get("kept"), true);
    all.S_in = kept.entering;
    if (x.sum) divide_gradient(x, kept, saved.get("o"), all);
    all.Z_in = x.entering(x.q, all.out, all.dS, true);
    for (int64_t first = 0; first < x.V; first += 128) {
      const Gradients some = all.values(first, std::min<int64_t>(128, x.V - first));
      const at::Tensor part = chunked_sweeps(x, some, first > 0);
      dg = dg.defined() ? dg + part : part;
    }
  } else {
    dg = recurrent_sweeps(x, all);
  }
  if (dg.defined()) dg = dg.to(in.g.scalar_type());
  const at::ScalarType type = x.q.scalar_type();
  std::vector<at::Tensor> gradients = {
      all.dq, grouped(all.dk, 2, x.G).to(type), grouped(all.dv, 2, x.G).to(type), dg};
  gradients.push_back(all.di.defined() ? all.di.to(in.i.scalar_type()) : all.di);
  if (!state.empty()) gradients.push_back(grouped(dS0, 1, x.G).to(state.parts[0].scalar_type()));
  if (state.parts.size() > 1) gradients.emplace_back();  // m, which is a constant
  return gradients;
}

}  // namespace

std::vector<Form> linear_kernels() {
  return {
      {.name = forms::kChunkedKernel,
       .forward = forward<true>,
       .backward = backward<true>,
       .types = {at::kBFloat16},
       .refuses = refuses_chunked,
       .suits = suits_chunked,
       .packs = per_key},
      {.name = forms::kRecurrentKernel,
       .forward = forward<false>,
       .backward = backward<false>,
       .refuses = refuses_recurrent,
       .suits = suits_recurrent},
  };
}

}  // namespace horner
