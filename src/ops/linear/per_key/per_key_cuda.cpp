#include "ops/linear/per_key/per_key_cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "cuda/tensors.h"
#include "ops/linear/linear.cuh"

namespace horner {
namespace {

struct Problem {
  at::Tensor q, k, v, g, S0, starts;
  int64_t B, T, H, G, K, V, n;  // n sequences
  float scale;
  cuda::Sequences sequences;
  cudaStream_t stream;

  Problem(const Inputs& in, const State& state, const Options& options)
      : q(readable(in.q, true)),
        k(readable(in.k, true)),
        v(readable(in.v, true)),
        g(readable(in.g.scalar_type() == at::kBFloat16 ? in.g : in.g.to(at::kFloat), true)),
        B(q.size(0)),
        T(q.size(1)),
        H(q.size(2)),
        G(k.size(2)),
        K(q.size(3)),
        V(v.size(3)),
        n(B),
        scale(float(options.scale.value_or(1.0))),
        stream(at::cuda::getCurrentCUDAStream(v.device().index())) {
    if (!state.empty()) S0 = state.parts[0].detach().to(at::kFloat);
    sequences.T = T;
    if (in.cu_seqlens.defined()) {
      starts = in.cu_seqlens.to(v.device(), at::kInt).contiguous();
      n = starts.numel() - 1;
      sequences.starts = starts.data_ptr<int>();
    }
    sequences.count = n;
  }

  bool narrow_g() const { return g.scalar_type() == at::kBFloat16; }
  at::TensorOptions wide() const { return q.options().dtype(at::kFloat); }

  // The states between chunks, of the sweep that adds x^T y. Those that enter the parts of the time, where there are
  // parts, are left in `entering`, or taken from it.
  at::Tensor states(
      const at::Tensor& x,
      const at::Tensor& y,
      bool reverse,
      const at::Tensor& first,
      const at::Tensor& last,
      at::Tensor& entering
  ) const {
    cuda::KeyStates p;
    p.sequences = sequences;
    p.H = x.size(2);
    p.K = int(K);
    p.V = int(V);
    p.reverse = reverse;
    p.scale = scale;
    p.x = rows(x, p.H);
    p.y = rows(y, p.H);
    p.g = rows(g, p.H);
    p.narrow_g = narrow_g();
    p.first = view(first, p.H, false);
    p.last = view(last, p.H, false);
    p.parts = cuda::key_state_parts(p);
    const int64_t keys = cuda::padded_keys(p.K), values = cuda::padded_values(p.V);
    const at::Tensor all = at::empty({sequences.slots(), p.H, keys, values}, q.options());
    p.states = all.data_ptr();
    at::Tensor decays;
    if (p.parts > 1) {
      if (!entering.defined()) {
        entering = at::empty({p.parts, n, p.H, keys, values}, wide());
        decays = at::empty({p.parts, n, p.H, keys}, wide());
        p.decays = decays.data_ptr<float>();
      }
      p.ends = entering.data_ptr<float>();
    }
    C10_CUDA_CHECK(cuda::key_states(p, stream));
    return all;
  }

  cuda::PerKey chunks(const at::Tensor& S, const at::Tensor& out) const {
    cuda::PerKey p;
    p.sequences = sequences;
    p.H = H;
    p.states = G;
    p.group = int(H / G);
    p.K = int(K);
    p.V = int(V);
    p.scale = scale;
    p.q = rows(q, H);
    p.k = rows(k, H);
    p.v = rows(v, H);
    p.g = rows(g, H);
    p.narrow_g = narrow_g();
    p.S = S.data_ptr();
    p.out = rows(out, H);
    return p;
  }
};

}  // namespace

Result per_key_forward(const Inputs& in, const State& state, const Options& options, Saved* saved) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x(in, state, options);
  Result y;
  y.o = at::empty({x.B, x.T, x.H, x.V}, x.v.options());
  at::Tensor last, entering;
  if (options.final_state) last = at::empty({x.n, x.G, x.K, x.V}, x.wide());
  const at::Tensor S = x.states(x.k, x.v, false, x.S0, last, entering);
  if (saved != nullptr) (*saved)["entering"] = entering;
  C10_CUDA_CHECK(cuda::key_output(x.chunks(S, y.o), x.stream));
  if (options.final_state) y.state.parts = {last};
  return y;
}

std::vector<at::Tensor> per_key_backward(
    const Inputs& in,
    const State& state,
    const Options& options,
    const Saved& saved,
    const Result& dy
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x(in, state, options);
  const at::Tensor out =
      dy.o.defined() ? readable(dy.o, true) : at::zeros({x.B, x.T, x.H, x.V}, x.v.options());
  at::Tensor dS, dS0;
  if (!dy.state.parts.empty() && dy.state.parts[0].defined())
    dS = dy.state.parts[0].detach().to(at::kFloat);
  if (x.S0.defined()) dS0 = at::empty({x.n, x.H, x.K, x.V}, x.wide());
  at::Tensor entering = saved.get("entering"), leaving;
  const at::Tensor S = x.states(x.k, x.v, false, x.S0, {}, entering);
  const at::Tensor Z = x.states(x.q, out, true, dS, dS0, leaving);

  const at::TensorOptions summed = x.H == x.G ? x.k.options() : x.wide();
  const at::Tensor dq = at::empty({x.B, x.T, x.H, x.K}, x.q.options());
  const at::Tensor dk = at::empty({x.B, x.T, x.H, x.K}, summed);
  const at::Tensor dv = at::empty({x.B, x.T, x.H, x.V}, summed);
  const at::Tensor dg =
      at::empty({x.B, x.T, x.H, x.K}, x.H == x.G && x.narrow_g() ? x.g.options() : x.wide());
  cuda::PerKey p = x.chunks(S, out);
  p.Z = Z.data_ptr();
  p.dq = rows(dq, x.H);
  p.dk = rows(dk, x.H);
  p.dv = rows(dv, x.H);
  p.dg = rows(dg, x.H);
  p.wide = x.H != x.G;
  p.narrow_dg = dg.scalar_type() == at::kBFloat16;
  C10_CUDA_CHECK(cuda::key_gradient(p, x.stream));

  const at::ScalarType type = x.q.scalar_type();
  std::vector<at::Tensor> all = {
      dq,
      grouped(dk, 2, x.G).to(type),
      grouped(dv, 2, x.G).to(type),
      grouped(dg, 2, x.G).to(in.g.scalar_type()),
      at::Tensor()};  // i
  if (!state.empty()) all.push_back(grouped(dS0, 1, x.G).to(state.parts[0].scalar_type()));
  return all;
}

}  // namespace horner
