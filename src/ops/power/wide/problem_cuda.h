// A call of `power` with wide keys: its tensors, the kernels on them (wide.cuh), and the op's states in the kernels' order.
#pragma once

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include "ops/power/power.h"
#include "ops/power/power_cuda.h"
#include "ops/power/wide/wide.cuh"

namespace horner {

// For each row of the kernels' state the row of the op's state; -1: none.
inline std::vector<int64_t> wide_op_rows(int64_t K, int64_t padded, int64_t order) {
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
struct WideProblem {
  const Options& options;
  int64_t B, T, H, G, K, V, padded, rows, columns, length, chunks;
  bool normalise;
  at::Tensor q, k, v;  // K padded; v~ = [v, 1, 1, 0 ..]
  float c[3] = {};
  cudaStream_t stream;

  WideProblem(const Inputs& in, const Options& o)
      : options(o),
        B(in.q.size(0)),
        T(in.q.size(1)),
        H(in.q.size(2)),
        G(in.k.size(2)),
        K(in.q.size(3)),
        V(in.v.size(3)),
        padded(K <= 64 ? 64 : 128),
        rows(cuda::wide_rows(int(padded))),
        columns((V + 2 + cuda::kWideColumns - 1) / cuda::kWideColumns * cuda::kWideColumns),
        normalise(o.norm == "sum"),
        stream(at::cuda::getCurrentCUDAStream(in.v.device().index())) {
    length = std::min<int64_t>(16 * padded, (T + 255) / 256 * 256);
    chunks = (T + length - 1) / length;
    const auto wide = [&](const at::Tensor& x) {
      return readable(
          padded == K ? x.detach() : at::constant_pad_nd(x.detach(), {0, padded - K}), true
      );
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
    p.blocks = int(columns / cuda::kWideColumns);
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
  // The state that enters each chunk (in reverse: the gradient of the state that leaves it), bf16; and the last state.
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

  void finish(
      const at::Tensor& high,
      const at::Tensor& low,
      const at::Tensor& inverse,
      const at::Tensor& y,
      const at::Tensor& o,
      const at::Tensor& kept
  ) const {
    cuda::PowerFinish p;
    p.B = B;
    p.T = T;
    p.H = H;
    p.V = int(V);
    p.columns = int(columns);
    p.length = length;
    p.padded = chunks * length;
    p.o_in = high.data_ptr();
    p.rest = low.data_ptr();
    p.inverse = inverse.data_ptr<float>();
    if (y.defined()) p.y = y.data_ptr<float>();
    p.normalise = normalise;
    p.clamps = normalise && !options.odd;
    p.eps = float(options.eps);
    p.o = o.data_ptr();
    if (kept.defined()) p.kept = kept.data_ptr<float>();
    C10_CUDA_CHECK(cuda::power_wide_finish(p, stream));
  }

  // Rows of the kernels' state that the op's state has, and their rows there. once: only the first of two equal rows.
  std::pair<at::Tensor, at::Tensor> same_rows(bool once) const {
    const std::vector<int64_t> list = wide_op_rows(K, padded, options.order);
    const int64_t twice = padded / 2 * padded + padded / 2;  // half of the tile of K/2
    std::vector<int64_t> own, op;
    for (int64_t row = 0; row < rows; ++row) {
      if (list[size_t(row)] < 0) continue;
      if (once && row >= twice && row < twice + padded / 2) continue;
      own.push_back(row);
      op.push_back(list[size_t(row)]);
    }
    return {at::tensor(own, at::kLong).to(v.device()), at::tensor(op, at::kLong).to(v.device())};
  }
  // The op's state in the kernels' order. A gradient is written to one of two equal rows, and to one column of ones.
  at::Tensor from_op(const at::Tensor& S, bool gradient) const {
    const auto [own, op] = same_rows(gradient);
    const at::Tensor to = at::zeros({B, G, rows, columns}, floats());
    to.narrow(3, 0, S.size(3)).index_copy_(2, own, S.detach().to(at::kFloat).index_select(2, op));
    if (normalise && !gradient) to.select(3, V + 1).copy_(to.select(3, V));
    return to;
  }
  // The reverse. A gradient is the sum over equal rows, and over both columns of ones.
  at::Tensor to_op(const at::Tensor& S, bool gradient) const {
    const auto [own, op] = same_rows(!gradient);
    at::Tensor found = S.narrow(3, 0, normalise ? V + 1 : V).index_select(2, own);
    if (normalise && gradient) found.select(3, V).add_(S.select(3, V + 1).index_select(2, own));
    const int64_t F = int64_t(feature_count(K, options.order));
    return at::zeros({B, G, F, found.size(3)}, floats()).index_add_(2, op, found);
  }

  // x for the parallel kernel: (B chunks, length, ..), padded at the end.
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

}  // namespace horner
