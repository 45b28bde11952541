// `power` of wide keys in chunks of many tokens (wide.cuh), under the contract of ops/kernel.h.
#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/power/power.h"
#include "ops/power/power_cuda.h"
#include "ops/power/wide.cuh"

namespace horner {
namespace {

using cuda::kWideColumns;

std::string refuses_wide(const Inputs& in, const State&, const Options& options) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  if (options.order > 2) return fmt::format("its order is at most 2, got {}", options.order);
  if (in.v.scalar_type() != at::kBFloat16)
    return c10::str("it computes in bf16, got ", in.v.scalar_type());
  if (K <= 32 || K > 128 || V > 128 || V % 8 != 0)
    return fmt::format("K is 33 to 128, V a multiple of 8 up to 128, got {} and {}", K, V);
  if (in.g.defined()) return "it has no decay";
  if (in.q.size(1) < 2) return "one token is a step";
  const cudaDeviceProp* gpu = at::cuda::getDeviceProperties(in.v.device().index());
  if (gpu->major != 9 || gpu->minor != 0)
    return fmt::format("it is made for sm_90a, not sm_{}{}", gpu->major, gpu->minor);
  return refuses_any_power(in, options);
}

// Row of the op's state, by row of the kernels'; -1: none.
std::vector<int64_t> op_rows(int64_t K, int64_t padded, int64_t order) {
  std::vector<int64_t> list(size_t(cuda::wide_rows(int(padded))), -1);
  const auto pair = [&](int64_t i, int64_t j) { return 1 + K + i * K - i * (i - 1) / 2 + j - i; };
  const int64_t tiles = padded / 2 + 1;
  for (int64_t d = 0; order > 1 && d < tiles; ++d) {
    for (int64_t j = 0; j < K; ++j) {
      const int64_t other = (j + d) % padded;
      if (other < K) list[size_t(d * padded + j)] = pair(std::min(j, other), std::max(j, other));
    }
  }
  for (int64_t j = 0; order > 0 && j < K; ++j) list[size_t(tiles * padded + j)] = 1 + j;
  list[size_t((tiles + 1) * padded)] = 0;
  return list;
}

// A call: its tensors as the kernels read them.
struct Problem {
  const Options& options;
  int64_t B, T, H, G, K, V, padded, rows, columns, length, chunks;
  bool normalise;
  at::Tensor q, k, v;  // K padded; v~ = [v, 1, 1, 0 ..]
  float c[3] = {};
  cudaStream_t stream;

  Problem(const Inputs& in, const Options& o)
      : options(o),
        B(in.q.size(0)),
        T(in.q.size(1)),
        H(in.q.size(2)),
        G(in.k.size(2)),
        K(in.q.size(3)),
        V(in.v.size(3)),
        padded(K <= 64 ? 64 : 128),
        rows(cuda::wide_rows(int(padded))),
        columns((V + 2 + kWideColumns - 1) / kWideColumns * kWideColumns),
        normalise(o.norm == "sum"),
        stream(at::cuda::getCurrentCUDAStream(in.v.device().index())) {
    length = std::min<int64_t>(16 * padded, (T + 255) / 256 * 256);
    chunks = (T + length - 1) / length;
    const auto wide = [&](const at::Tensor& x) {
      return readable(padded == K ? x.detach() : at::constant_pad_nd(x.detach(), {0, padded - K}));
    };
    q = wide(in.q);
    k = wide(in.k);
    v = at::zeros({B, T, G, columns}, in.v.options());
    v.narrow(3, 0, V).copy_(in.v.detach());
    if (normalise) v.narrow(3, V, 2).fill_(1);
    const std::vector<double> all = series(o);
    double power = 1;
    for (size_t n = 0; n < all.size(); ++n, power *= scale_of(in, o)) c[n] = float(all[n] * power);
  }

  at::TensorOptions floats() const { return v.options().dtype(at::kFloat); }

  cuda::PowerWide describe(const at::Tensor& x) const {
    cuda::PowerWide p;
    p.B = B;
    p.T = T;
    p.H = x.size(2);
    p.K = int(padded);
    p.blocks = int(columns / kWideColumns);
    p.length = int(length);
    p.chunks = int(chunks);
    p.x = horner::rows(x, p.H);
    return p;
  }
  at::Tensor update(const at::Tensor& x, const at::Tensor& u) const {
    cuda::PowerWide p = describe(x);
    p.u = horner::rows(u, p.H);
    const at::Tensor sums = at::empty({B, chunks, p.H, rows, columns}, floats());
    p.sums = sums.data_ptr<float>();
    C10_CUDA_CHECK(cuda::power_wide_update(p, stream));
    return sums;
  }
  at::Tensor read(const at::Tensor& x, const at::Tensor& S) const {
    cuda::PowerWide p = describe(x);
    p.group = int(p.H / G);
    p.S = S.data_ptr();
    const at::Tensor y = at::empty({B, T, p.H, columns}, floats());
    p.y = y.data_ptr<float>();
    C10_CUDA_CHECK(cuda::power_wide_read(p, stream));
    return y;
  }
  at::Tensor contract(const at::Tensor& x, const at::Tensor& u, const at::Tensor& S) const {
    cuda::PowerWide p = describe(x);
    p.group = int(p.H / G);
    p.u = horner::rows(u, p.H);
    p.S = S.data_ptr();
    const at::Tensor dx = at::empty({B, T, p.H, padded}, floats());
    p.dx = dx.data_ptr<float>();
    C10_CUDA_CHECK(cuda::power_wide_contract(p, stream));
    return dx;
  }
  // What enters each chunk, or in reverse what leaves it, bf16, and what is left at the end.
  std::pair<at::Tensor, at::Tensor> prefix(
      const at::Tensor& sums, const at::Tensor& first, bool back
  ) const {
    const at::Tensor S = at::empty({B, chunks, G, rows, columns}, v.options()),
                     last = at::empty({B, G, rows, columns}, floats());
    cuda::PowerPrefix p;
    p.B = B;
    p.heads = G;
    p.chunks = chunks;
    p.rows = rows;
    p.K = int(padded);
    p.columns = int(columns);
    p.group = int(sums.size(2) / G);
    p.c0 = c[0], p.c1 = c[1], p.c2 = c[2];
    p.weighs_sums = p.back = back;
    p.sums = sums.data_ptr<float>();
    if (first.defined()) p.first = first.data_ptr<float>();
    p.S = S.data_ptr();
    p.last = last.data_ptr<float>();
    C10_CUDA_CHECK(cuda::power_wide_prefix(p, stream));
    return {S, last};
  }

  at::Tensor row_table() const {
    return at::tensor(op_rows(K, padded, options.order), at::kLong).to(v.device());
  }
  // The op's state in the kernels' order; once: a row that stands twice gets it once.
  at::Tensor from_op(const at::Tensor& S, bool once) const {
    std::vector<int64_t> list = op_rows(K, padded, options.order);
    const int64_t half = padded / 2 * padded;  // from here on the tile of K/2
    for (int64_t j = padded / 2; once && options.order > 1 && j < padded; ++j)
      list[size_t(half + j)] = -1;
    const at::Tensor table = at::tensor(list, at::kLong).to(v.device());
    at::Tensor rows_of = S.detach().to(at::kFloat).index_select(2, table.clamp_min(0));
    rows_of = rows_of * (table >= 0).to(at::kFloat).unsqueeze(1);
    const at::Tensor to = at::zeros({B, G, rows, columns}, floats());
    to.narrow(3, 0, S.size(3)).copy_(rows_of);
    if (normalise && !once) to.select(3, V + 1).copy_(to.select(3, V));
    return to;
  }
  // And back; all: the sum of those that stand twice, and of both columns of ones.
  at::Tensor to_op(const at::Tensor& S, bool all) const {
    const at::Tensor table = row_table(), kept = table.ge(0).nonzero().squeeze(1);
    at::Tensor columns_of = S.narrow(3, 0, normalise ? V + 1 : V);
    if (normalise && all) {
      columns_of = columns_of.clone();
      columns_of.select(3, V).add_(S.select(3, V + 1));
    }
    const at::Tensor found = columns_of.index_select(2, kept), where = table.index_select(0, kept);
    const at::Tensor to =
        at::zeros({B, G, int64_t(feature_count(K, options.order)), columns_of.size(3)}, floats());
    return all ? to.index_add_(2, where, found) : to.index_copy_(2, where, found);
  }

  // The parallel kernel's part: (B chunks, length, ..), the end padded.
  at::Tensor chunked(const at::Tensor& x) const {
    const int64_t rest = chunks * length - T;
    return (rest > 0 ? at::constant_pad_nd(x, {0, 0, 0, 0, 0, rest}) : x)
        .reshape({B * chunks, length, x.size(2), x.size(3)});
  }
  at::Tensor whole(const at::Tensor& x) const {
    return x.reshape({B, chunks * length, x.size(2), x.size(3)}).narrow(1, 0, T);
  }
  Options inside() const {
    Options o = options;
    o.final_state = false;
    o.scale = options.scale.value_or(1.0 / std::sqrt(double(K)));
    return o;
  }
};

Result compute(const Inputs& in, const State& state, const Options& options, bool keep) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x(in, options);
  Options inside = x.inside();
  inside.norm = "none";
  const at::Tensor q = x.chunked(x.q), k = x.chunked(x.k), v = x.chunked(x.v);
  const at::Tensor num = at::empty({x.B, x.T, x.H, x.columns}, x.floats());
  for (int64_t n = 0; n < x.columns; n += kWideColumns) {
    const auto [high, low] =
        power_parallel_sums({.q = q, .k = k, .v = v.narrow(3, n, kWideColumns)}, inside);
    num.narrow(3, n, kWideColumns).copy_(x.whole(high)).add_(x.whole(low));
  }
  Result y;
  if (!state.empty() || x.chunks > 1 || options.final_state) {
    const at::Tensor first = state.empty() ? at::Tensor() : x.from_op(state.parts[0], false);
    const auto [S, last] = x.prefix(x.update(x.k, x.v), first, false);
    num.add_(x.read(x.q, S));
    if (options.final_state) y.state.parts = {x.to_op(last, false)};
  }
  at::Tensor o = num.narrow(3, 0, x.V);
  if (x.normalise) {
    const at::Tensor den = num.narrow(3, x.V, 1);
    o = o / (options.odd ? den : den.clamp_min(options.eps));
    if (keep) y.norm = at::cat({o, den}, 3);
  }
  y.o = o.to(at::kBFloat16).contiguous();
  y.form = "wide kernel";
  return y;
}
Result forward(const Inputs& in, const State& state, const Options& options) {
  return compute(in, state, options, backward_follows());
}

std::vector<at::Tensor> backward(
    const Inputs& in,
    const State& state,
    const Options& options,
    const Result& given,
    const Result& dy
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const Problem x(in, options);
  const at::Tensor dO =
      dy.o.defined() ? dy.o.detach() : at::zeros({x.B, x.T, x.H, x.V}, x.v.options());
  at::Tensor o = at::zeros({}, x.floats()).expand({x.B, x.T, x.H, x.V}),
             inverse = at::ones({x.B, x.T, x.H, 1}, x.floats());
  // do~ = [do / den, -Delta / den], the latter as a sum of two bf16
  at::Tensor u = at::zeros({x.B, x.T, x.H, x.columns}, x.v.options());
  u.narrow(3, 0, x.V).copy_(dO);
  if (x.normalise) {
    const Result y = given.norm.defined() ? given : compute(in, state, options, true);
    o = y.norm.narrow(3, 0, x.V);
    const at::Tensor den = y.norm.narrow(3, x.V, 1), wide = dO.to(at::kFloat);
    const at::Tensor held = den < (options.odd ? -HUGE_VAL : options.eps);  // a constant there
    inverse = den.where(~held, options.eps).reciprocal();
    const at::Tensor delta = ((wide * o).sum(3, true) * -inverse).where(~held, 0);
    const at::Tensor high = delta.to(at::kBFloat16);
    u.narrow(3, 0, x.V).copy_(wide * inverse);
    u.narrow(3, x.V, 1).copy_(high);
    u.narrow(3, x.V + 1, 1).copy_(delta - high.to(at::kFloat));
    inverse = inverse.where(~held, -inverse);
  }
  Result y, d;
  y.o = x.chunked(o.to(at::kBFloat16));
  y.norm = power_parallel_kept(
      x.chunked((o - x.whole(y.o)).to(at::kBFloat16)), x.chunked(inverse).squeeze(3).transpose(1, 2)
  );
  d.o = x.chunked(dO);
  const Inputs pairs{.q = x.chunked(x.q), .k = x.chunked(x.k), .v = x.chunked(in.v.detach())};
  const std::vector<at::Tensor> own = power_parallel_kernel().backward(pairs, {}, x.inside(), y, d);
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

// Where it is the only one, or faster than all pairs, forward and backward, as measured on an H200.
bool suits(const Inputs& in, const State& state, const Options& options) {
  const int64_t T = in.q.size(1), K = in.q.size(3);
  return !state.empty() || options.final_state || T >= (K <= 64 ? 20480 : 57344);
}

}  // namespace

Kernel power_wide_kernel() { return {"wide kernel", refuses_wide, forward, backward, suits}; }

}  // namespace horner
