// The kernels of `delta`: chunked and token by token.
#include "ops/delta/delta_cuda.h"

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "cuda/tensors.h"
#include "ops/chunks.h"
#include "ops/delta/delta.cuh"

namespace horner {
namespace {

constexpr int64_t kMostScratch = int64_t(1) << 29;  // bytes of states that a backward keeps at once

bool per_key(const at::Tensor& g) { return g.defined() && g.dim() == 4; }

std::string refuses_recurrent(const Inputs& in, const State&, const Options&) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  const int64_t most = in.v.scalar_type() == at::kDouble ? 128 : 256;  // registers of a block
  if (K > most || V > 256)
    return fmt::format("K is at most {} and V 256, got {} and {}", most, K, V);
  if (in.v.numel() == 0 || in.q.numel() == 0) return "there is nothing to compute";
  return "";
}

std::string refuses_chunked(const Inputs& in, const State& state, const Options& options) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  if (K > 128 || V > 128 || K % 8 != 0 || V % 8 != 0)
    return fmt::format("K and V are multiples of 8 up to 128, got {} and {}", K, V);
  const cudaDeviceProp* gpu = at::cuda::getDeviceProperties(in.v.device().index());
  const size_t memory = per_key(in.g) ? 145 : 167;  // of the largest kernel, KB
  if (gpu->major < 8 || gpu->sharedMemPerBlockOptin < memory * 1024)
    return fmt::format("it needs sm_80 or later and {} KB of shared memory", memory);
  return refuses_recurrent(in, state, options);
}

// A call in which every tensor has H heads. q, k, v keep their dtype; the rest is in the accumulator's type.
struct Problem {
  at::Tensor q, k, v, g, beta, S0;
  int64_t B, T, H, G, K, V;
  at::ScalarType wide;
  double scale;
  cudaStream_t stream;

  // bf16_keys: a decay per key in bf16 stays in bf16.
  Problem(const Inputs& in, const State& state, const Options& options, bool bf16_keys = false)
      : q(in.q.detach()),
        B(q.size(0)),
        T(q.size(1)),
        H(q.size(2)),
        G(in.k.size(2)),
        K(q.size(3)),
        V(in.v.size(3)),
        wide(state_dtype(in)),
        scale(options.scale.value_or(1.0)),
        stream(at::cuda::getCurrentCUDAStream(in.v.device().index())) {
    k = all_heads(in.k.detach(), 2);
    v = all_heads(in.v.detach(), 2);
    beta = all_heads(in.beta.detach().to(wide), 2).contiguous();
    const bool as_given = bf16_keys && per_key(in.g) && in.g.scalar_type() == at::kBFloat16;
    if (in.g.defined())
      g = all_heads(as_given ? in.g.detach() : in.g.detach().to(wide), 2).contiguous();
    if (!state.empty()) S0 = all_heads(state.parts[0].detach().to(wide), 1).contiguous();
  }

  at::Tensor all_heads(const at::Tensor& x, int64_t dim) const {
    return x.size(dim) == H ? x : x.repeat_interleave(H / x.size(dim), dim);
  }
  at::TensorOptions wide_options() const { return q.options().dtype(wide); }
  at::Tensor state(int64_t rows) const { return at::empty({rows, H, K, V}, wide_options()); }

  // The state of a group is that of its first query head. The incoming gradient of the state goes there too.
  State final_state(const at::Tensor& last) const {
    return {{G == H ? last : last.unflatten(1, {G, H / G}).select(2, 0).contiguous()}};
  }
  at::Tensor final_gradient(const Result& dy) const {
    if (dy.state.parts.empty() || !dy.state.parts[0].defined()) return {};
    const at::Tensor dS = dy.state.parts[0].detach().to(wide);
    if (G == H) return dS.contiguous();
    const at::Tensor all = at::zeros({dS.size(0), G, H / G, K, V}, wide_options());
    all.select(2, 0).copy_(dS);
    return all.flatten(1, 2);
  }

  // In the order of op.inputs, then the state.
  std::vector<at::Tensor> gradients(
      const Inputs& in,
      const State& state,
      const at::Tensor& dq,
      const at::Tensor& dk,
      const at::Tensor& dv,
      const at::Tensor& dbeta,
      const at::Tensor& dg,
      const at::Tensor& dS0
  ) const {
    const auto sum = [&](const at::Tensor& x, int64_t dim, const at::Tensor& like) {
      return grouped(x, dim, G).to(like.scalar_type());
    };
    std::vector<at::Tensor> all = {
        dq.to(in.q.scalar_type()), sum(dk, 2, in.k), sum(dv, 2, in.v), sum(dbeta, 2, in.beta)};
    all.push_back(in.g.defined() ? sum(dg, 2, in.g) : dg);
    if (!state.empty()) all.push_back(sum(dS0, 1, state.parts[0]));
    return all;
  }
};

// --- token by token --------------------------------------------------------------------------------

void* data(const at::Tensor& x) { return x.defined() ? x.data_ptr() : nullptr; }

// Rows first .. first + count - 1 of the batch, which are contiguous.
cuda::DeltaTokens batch_rows(const Problem& x, int64_t first, int64_t count) {
  const auto row = [&](const at::Tensor& t) {
    return t.defined() ? t.narrow(0, first, count).data_ptr() : nullptr;
  };
  cuda::DeltaTokens p;
  p.B = count;
  p.T = x.T;
  p.H = x.H;
  p.K = int(x.K);
  p.V = int(x.V);
  p.scale = x.scale;
  p.type = type_of(x.v.scalar_type());
  p.q = row(x.q);
  p.k = row(x.k);
  p.v = row(x.v);
  p.g = row(x.g);
  p.per_key = per_key(x.g);
  p.beta = row(x.beta);
  p.first = row(x.S0);
  return p;
}

Problem contiguous_problem(const Inputs& in, const State& state, const Options& options) {
  Problem x(in, state, options);
  for (at::Tensor* t : {&x.q, &x.k, &x.v}) *t = t->contiguous();
  return x;
}

Result recurrent(const Inputs& in, const State& state, const Options& options, Saved*) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x = contiguous_problem(in, state, options);
  cuda::DeltaTokens p = batch_rows(x, 0, x.B);
  Result y;
  y.o = at::empty({x.B, x.T, x.H, x.V}, x.v.options());
  at::Tensor last;
  if (options.final_state) last = x.state(x.B);
  p.o = data(y.o);
  p.last = data(last);
  C10_CUDA_CHECK(cuda::delta_recurrent(p, x.stream));
  if (options.final_state) y.state = x.final_state(last);
  return y;
}

// A few rows of the batch at a time, because the kernel keeps many states.
std::vector<at::Tensor> recurrent_backward(
    const Inputs& in, const State& state, const Options& options, const Saved&, const Result& dy
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x = contiguous_problem(in, state, options);
  const at::Tensor out =
      dy.o.defined() ? dy.o.detach().contiguous() : at::zeros({x.B, x.T, x.H, x.V}, x.v.options());
  const at::Tensor dlast = x.final_gradient(dy);
  const at::Tensor dq = at::empty({x.B, x.T, x.H, x.K}, x.wide_options()), dk = at::empty_like(dq);
  const at::Tensor dv = at::empty_like(x.v, x.wide_options()), dbeta = at::empty_like(x.beta);
  at::Tensor dg, dS0;
  if (x.g.defined()) dg = at::empty_like(x.g);
  if (x.S0.defined()) dS0 = at::empty_like(x.S0);

  const int64_t blocks = cuda::delta_blocks(int(x.V)), rows = cuda::delta_rows(int(x.K));
  const int64_t segments = (x.T + cuda::kDeltaSegment - 1) / cuda::kDeltaSegment;
  const int64_t place = x.H * blocks * rows * cuda::kDeltaColumns;
  const int64_t row_bytes = place * (segments + cuda::kDeltaSegment) * int64_t(x.beta.itemsize());
  const int64_t count = std::clamp<int64_t>(kMostScratch / row_bytes, 1, x.B);
  const auto like = x.wide_options();
  const at::Tensor starts = at::empty({count, place, segments}, like);
  const at::Tensor inside = at::empty({count, place, cuda::kDeltaSegment}, like);
  for (int64_t b = 0; b < x.B; b += count) {
    const int64_t n = std::min(count, x.B - b);
    cuda::DeltaTokens p = batch_rows(x, b, n);
    const at::Tensor q = at::empty({blocks, n, x.T, x.H, x.K}, like), k = at::empty_like(q);
    const at::Tensor beta = at::empty({blocks, n, x.T, x.H}, like);
    const at::Tensor g = at::empty_like(p.per_key ? q : beta);
    p.dout = data(out.narrow(0, b, n));
    p.dv = data(dv.narrow(0, b, n));
    if (dlast.defined()) p.dlast = data(dlast.narrow(0, b, n));
    if (dS0.defined()) p.dfirst = data(dS0.narrow(0, b, n));
    p.dq = data(q);
    p.dk = data(k);
    p.dbeta = data(beta);
    if (dg.defined()) p.dg = data(g);
    p.starts = data(starts);
    p.inside = data(inside);
    C10_CUDA_CHECK(cuda::delta_recurrent_backward(p, x.stream));
    dq.narrow(0, b, n).copy_(q.sum(0));
    dk.narrow(0, b, n).copy_(k.sum(0));
    dbeta.narrow(0, b, n).copy_(beta.sum(0));
    if (dg.defined()) dg.narrow(0, b, n).copy_(g.sum(0));
  }
  return x.gradients(in, state, dq, dk, dv, dbeta, dg, dS0);
}

// --- chunked ---------------------------------------------------------------------------------------

struct ChunkedProblem : Problem {
  at::Tensor starts, inverse, scores, factors;
  at::Tensor weighed;  // per key: Kr, Qr, Kw
  cuda::DeltaChunks p;

  // kept: what solve() made in the forward, or null.
  ChunkedProblem(
      const Inputs& in, const State& state, const Options& options, const Saved* kept = nullptr
  )
      : Problem(in, state, options, true) {
    for (at::Tensor* t : {&q, &k, &v}) *t = readable(*t, true);
    p.sequences.T = T;
    p.sequences.count = B;
    if (in.cu_seqlens.defined()) {
      starts = in.cu_seqlens.to(v.device(), at::kInt).contiguous();
      p.sequences.count = starts.numel() - 1;
      p.sequences.starts = starts.data_ptr<int>();
    }
    p.H = H;
    p.K = int(K);
    p.V = int(V);
    p.scale = float(scale);
    p.q = rows(q, H);
    p.k = rows(k, H);
    p.v = rows(v, H);
    p.beta = rows(beta, H);
    if (per_key(in.g)) {
      p.per_key = true;
      p.narrow_g = g.scalar_type() == at::kBFloat16;
      g = readable(g, true);
    }
    if (g.defined()) p.g = rows(g, H);
    p.first = view(S0, H, false);
    if (kept != nullptr && kept->get("inverse").defined())
      take(*kept);
    else
      solve();
  }

  // With a decay per key the solve is a third of the forward, and what it made is kept: 6 K + 256 bytes a token and head,
  // where q, k, v and g are 8 K. With a decay per head it is cheap, and made again.
  void keep(Saved& kept) const {
    if (!p.per_key) return;
    kept["inverse"] = inverse;
    kept["scores"] = scores;
    kept["factors"] = factors;
    kept["weighed"] = weighed;
  }

 private:
  void solve() {
    const int64_t slots = p.sequences.slots(), keys = p.keys();
    inverse = at::empty({slots, H, 64, 64}, q.options());
    scores = at::empty_like(inverse);
    factors = at::empty({slots, H, p.per_key ? keys : 128}, wide_options());
    if (p.per_key) weighed = at::empty({3, slots, H, 64, keys}, q.options());
    show();
    C10_CUDA_CHECK(p.per_key ? cuda::delta_key_solve(p, stream) : cuda::delta_solve(p, stream));
  }
  void take(const Saved& kept) {
    inverse = kept.get("inverse");
    scores = kept.get("scores");
    factors = kept.get("factors");
    weighed = kept.get("weighed");
    show();
  }
  // Their addresses to the kernels.
  void show() {
    p.inverse = data(inverse);
    p.scores = data(scores);
    p.factors = factors.data_ptr<float>();
    if (!p.per_key) return;
    p.read_k = data(weighed[0]);
    p.read_q = data(weighed[1]);
    p.write_k = data(weighed[2]);
  }
};

Result chunked(const Inputs& in, const State& state, const Options& options, Saved* saved) {
  const c10::cuda::CUDAGuard device(in.v.device());
  ChunkedProblem x(in, state, options);
  Result y;
  y.o = at::empty({x.B, x.T, x.H, x.V}, x.v.options());
  x.p.out = rows(y.o, x.H);
  at::Tensor last;
  if (options.final_state) last = x.state(x.p.sequences.count);
  x.p.last = view(last, x.H, false);
  C10_CUDA_CHECK(cuda::delta_forward(x.p, x.stream));
  if (options.final_state) y.state = x.final_state(last);
  if (saved != nullptr) x.keep(*saved);
  return y;
}

std::vector<at::Tensor> chunked_backward(
    const Inputs& in,
    const State& state,
    const Options& options,
    const Saved& saved,
    const Result& dy
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  ChunkedProblem x(in, state, options, &saved);
  cuda::DeltaChunks& p = x.p;
  const at::Tensor S = at::empty({p.sequences.slots(), x.H, p.values(), p.keys()}, x.q.options());
  const at::Tensor Z = at::empty_like(S);
  const at::Tensor error = at::empty({x.B, x.T, x.H, x.V}, x.v.options());
  p.error = rows(error, x.H);
  p.S = data(S);
  C10_CUDA_CHECK(cuda::delta_forward(p, x.stream));

  const at::Tensor out =
      dy.o.defined() ? readable(dy.o, true) : at::zeros({x.B, x.T, x.H, x.V}, x.v.options());
  const at::Tensor dq = at::empty({x.B, x.T, x.H, x.K}, x.q.options()), dk = at::empty_like(dq);
  const at::Tensor dv = at::empty_like(error);
  const at::Tensor dbeta = at::empty({x.B, x.T, x.H}, x.wide_options());
  const at::Tensor dlast = x.final_gradient(dy);
  at::Tensor dg, dS0;
  if (p.per_key)
    dg = at::empty({x.B, x.T, x.H, x.K}, x.g.options());
  else if (x.g.defined())
    dg = at::empty_like(dbeta);
  if (x.S0.defined()) dS0 = at::empty_like(x.S0);
  p.out = rows(out, x.H);
  p.dq = rows(dq, x.H);
  p.dk = rows(dk, x.H);
  p.dv = rows(dv, x.H);
  p.dbeta = dbeta.data_ptr<float>();
  if (p.per_key)
    p.dg_keys = rows(dg, x.H);
  else if (dg.defined())
    p.dg = dg.data_ptr<float>();
  p.Z = data(Z);
  p.first = view(dlast, x.H, false);
  p.last = view(dS0, x.H, false);
  C10_CUDA_CHECK(cuda::delta_reverse(p, x.stream));
  C10_CUDA_CHECK(
      p.per_key ? cuda::delta_key_gradient(p, x.stream) : cuda::delta_gradient(p, x.stream)
  );
  return x.gradients(in, state, dq, dk, dv, dbeta, dg, dS0);
}

bool packs(const Inputs&) { return true; }

}  // namespace

std::vector<Form> delta_kernels() {
  return {
      delta_step_kernel(),
      {.name = forms::kChunkedKernel,
       .forward = chunked,
       .backward = chunked_backward,
       .types = {at::kBFloat16},
       .refuses = refuses_chunked,
       .packs = packs},
      {.name = forms::kRecurrentKernel,
       .forward = recurrent,
       .backward = recurrent_backward,
       .refuses = refuses_recurrent},
  };
}

}  // namespace horner
