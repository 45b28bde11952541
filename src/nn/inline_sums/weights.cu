// Queries, shifted keys and values, and the factor c (inline_sums.h).
#include "nn/inline_sums/rows.cuh"

namespace horner::cuda {
namespace {

template <int L>
__global__ void __launch_bounds__(kThreads)
    weights_kernel(const __grid_constant__ InlineWeights p) {
  __shared__ float totals[2][kWarps][L * kUnit];
  const InlineShape& s = p.shape;
  const Place<L> me(s);
  Before<L> before{totals};
  float k0[kUnit], v0[kUnit];
  load_unit(k0, p.k + me.at(s, 0));
  load_unit(v0, p.v + me.at(s, 0));
  const float scale = rsqrtf(float(s.K));
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    uint4 q[kEach], k[kEach], v[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool there = start + i < s.T;
      const int64_t at = me.at(s, start + i);
      q[i] = fetch(p.q + at, there);
      k[i] = fetch(p.k + at, there);
      v[i] = fetch(p.v + at, there);
    }
    float z[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (start + i >= s.T) continue;
      float x[kUnit];
      unpack(x, v[i]);
      add(x, v0, -1.f);
      keep(p.vs + me.at(s, start + i), packed(x));
      unpack(x, k[i]);
      add(x, k0, -1.f);
      k[i] = packed(x);
      keep(p.ks + me.at(s, start + i), k[i]);
      unpack(x, k[i]);  // as the op reads it: the weights sum to 1
      add(z, x);
    }
    before(z);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float n = float(start + i + 1);
      float x[kUnit], y[kUnit];
      unpack(x, k[i]);
      add(z, x);
      unpack(x, q[i]);
#pragma unroll
      for (int c = 0; c < kUnit; ++c) y[c] = x[c] * (scale / n);
      q[i] = packed(y);
      unpack(y, q[i]);
      const float read = over_head<L>(dot(y, z));
      if (start + i >= s.T) continue;
      keep(p.qh + me.at(s, start + i), q[i]);
      if (me.column == 0) p.c[me.row(s, start + i)] = (1.f - read) / n;
    }
  }
}

// dq = (dqh - dc z / n) / (n sqrt K)
template <int L>
__device__ void query_gradients(const InlineWeights& p, const Place<L>& me, Before<L>& before) {
  const InlineShape& s = p.shape;
  const float scale = rsqrtf(float(s.K));
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    uint4 d[kEach], k[kEach];
    float dc[kEach], z[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool there = start + i < s.T;
      d[i] = fetch(p.dqh + me.at(s, start + i), there);
      k[i] = fetch(p.ks + me.at(s, start + i), there);
      dc[i] = there ? p.dc[me.row(s, start + i)] : 0.f;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float x[kUnit];
      unpack(x, k[i]);
      add(z, x);
    }
    before(z);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float n = float(start + i + 1);
      float x[kUnit], y[kUnit];
      unpack(x, k[i]);
      add(z, x);
      unpack(y, d[i]);
      add(y, z, -dc[i] / n);
#pragma unroll
      for (int c = 0; c < kUnit; ++c) y[c] *= scale / n;
      if (start + i < s.T) keep(p.dq + me.at(s, start + i), packed(y));
    }
  }
}

// dk_t = dks_t - sum_{s >= t} dc_s qh_s / n_s
template <int L>
__device__ void key_gradients(const InlineWeights& p, const Place<L>& me, Before<L>& before) {
  const InlineShape& s = p.shape;
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    const int64_t last = s.T - 1 - start;
    uint4 d[kEach], q[kEach];
    float factor[kEach], sum[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool there = last >= i;
      d[i] = fetch(p.dks + me.at(s, last - i), there);
      q[i] = fetch(p.qh + me.at(s, last - i), there);
      factor[i] = there ? -p.dc[me.row(s, last - i)] / float(last - i + 1) : 0.f;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float x[kUnit];
      unpack(x, q[i]);
      add(sum, x, factor[i]);
    }
    before(sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float x[kUnit], y[kUnit];
      unpack(x, q[i]);
      add(sum, x, factor[i]);
      unpack(y, d[i]);
      add(y, sum);
      if (last >= i) keep(p.dk + me.at(s, last - i), packed(y));
    }
  }
}

template <int L>
__global__ void __launch_bounds__(kThreads)
    weights_backward_kernel(const __grid_constant__ InlineWeights p) {
  __shared__ float totals[2][kWarps][L * kUnit];
  const Place<L> me(p.shape);
  Before<L> before{totals};
  if (blockIdx.y == 0)
    query_gradients<L>(p, me, before);
  else
    key_gradients<L>(p, me, before);
}

struct StartWeights {
  const InlineWeights& p;
  cudaStream_t stream;
  template <int L>
  void run() const {
    if (p.dc != nullptr)
      weights_backward_kernel<L><<<blocks(p.shape, 2), kThreads, 0, stream>>>(p);
    else
      weights_kernel<L><<<blocks(p.shape), kThreads, 0, stream>>>(p);
  }
};

}  // namespace

cudaError_t inline_weights(const InlineWeights& p, cudaStream_t stream) {
  return for_head(p.shape, StartWeights{p, stream});
}

}  // namespace horner::cuda
