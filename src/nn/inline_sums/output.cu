// The output: what the op read, c times the sum of values, and the local residual (inline_sums.h).
#include "nn/inline_sums/rows.cuh"

namespace horner::cuda {
namespace {

// b_j + rk_tj of a thread's channels, from its bits.
__device__ void tap(float (&x)[kUnit], const uint4& bits, const float* bias) {
  unpack(x, bits);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) x[c] += __ldg(bias + c);
}
template <class Place>
__device__ uint4 fetch_tap(const InlineOutput& p, const Place& me, int64_t t, int j) {
  const InlineShape& s = p.shape;
  const int64_t at = (me.by_head(s, t) * s.taps + j) * s.K + me.column;
  return fetch(p.rk + at, j < s.taps && t >= 0 && t < s.T);
}

template <int L>
__global__ void __launch_bounds__(kThreads) output_kernel(const __grid_constant__ InlineOutput p) {
  __shared__ float totals[2][kWarps][L * kUnit];
  const InlineShape& s = p.shape;
  const Place<L, kFew> me(s);
  Before<L> before{totals};
  float v0[kUnit];
  load_unit(v0, p.v + me.at(s, 0));
  const float* bias = p.bias + me.h * s.taps * s.K + me.column;
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    uint4 v[kFew + kTaps - 1], rk[kFew][kTaps], read[kFew];  // v[i]: of start + i - (kTaps - 1)
#pragma unroll
    for (int i = 0; i < kFew + kTaps - 1; ++i) {
      const int64_t t = start + i - (kTaps - 1);
      v[i] = fetch(p.v + me.at(s, t), t >= 0 && t < s.T);
    }
#pragma unroll
    for (int i = 0; i < kFew; ++i) {
      read[i] = fetch(p.read + me.at(s, start + i), start + i < s.T);
#pragma unroll
      for (int j = 0; j < kTaps; ++j) rk[i][j] = fetch_tap(p, me, start + i, j);
    }
    float sum[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kFew; ++i) {
      float x[kUnit];
      unpack(x, v[i + kTaps - 1]);
      if (start + i >= s.T) continue;
      add(x, v0, -1.f);
      add(sum, x);
    }
    before(sum);
#pragma unroll
    for (int i = 0; i < kFew; ++i) {
      const int64_t t = start + i;
      if (t >= s.T) continue;
      float o[kUnit], x[kUnit], w[kUnit];
      unpack(o, read[i]);
      unpack(x, v[i + kTaps - 1]);
      add(x, v0, -1.f);
      add(sum, x);
      add(o, sum, p.c[me.row(s, t)]);
      add(o, v0);
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        if (j >= s.taps) continue;
        unpack(x, v[i + kTaps - 1 - j]);
        tap(w, rk[i][j], bias + j * s.K);
#pragma unroll
        for (int c = 0; c < kUnit; ++c) o[c] += w[c] * x[c];
      }
      keep(p.o + me.at(s, t), packed(o));
    }
  }
}

// dc_t = dy_t . sum_{s <= t} v'_s
template <int L>
__device__ void factor_gradients(const InlineOutput& p, const Place<L>& me, Before<L>& before) {
  const InlineShape& s = p.shape;
  float v0[kUnit];
  load_unit(v0, p.v + me.at(s, 0));
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    uint4 v[kEach], d[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      v[i] = fetch(p.v + me.at(s, start + i), start + i < s.T);
      d[i] = fetch(p.dy + me.at(s, start + i), start + i < s.T);
    }
    float sum[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float x[kUnit];
      unpack(x, v[i]);
      add(x, v0, -1.f);
      add(sum, x, start + i < s.T ? 1.f : 0.f);
    }
    before(sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float x[kUnit], y[kUnit];
      unpack(x, v[i]);
      add(x, v0, -1.f);
      add(sum, x);
      unpack(y, d[i]);
      const float dc = over_head<L>(dot(y, sum));
      if (start + i < s.T && me.column == 0) p.dc[me.row(s, start + i)] = dc;
    }
  }
}

// dv_t = sum_{s >= t} c_s dy_s + sum_j (b_j + rk_{t+j,j}) dy_{t+j},   drk_tj = dy_t v_{t-j}
template <int L>
__device__ void value_gradients(
    const InlineOutput& p, const Place<L, kFew>& me, Before<L>& before, float (&dbias)[kTaps][kUnit]
) {
  const InlineShape& s = p.shape;
  const float* bias = p.bias + me.h * s.taps * s.K + me.column;
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    const int64_t last = s.T - 1 - start;
    uint4 d[kFew + kTaps - 1], v[kFew + kTaps - 1];  // d[i + kTaps - 1], v[i]: of last - i
    uint4 rk[kFew][kTaps];                           // of last - i + j
#pragma unroll
    for (int i = 0; i < kFew + kTaps - 1; ++i) {
      const int64_t later = last - i + (kTaps - 1), t = last - i;
      d[i] = fetch(p.dy + me.at(s, later), later >= 0 && later < s.T);
      v[i] = fetch(p.v + me.at(s, t), t >= 0 && s.taps > 0);
    }
    float c[kFew], sum[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kFew; ++i) {
      c[i] = last >= i ? p.c[me.row(s, last - i)] : 0.f;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) rk[i][j] = fetch_tap(p, me, last - i + j, j);
    }
#pragma unroll
    for (int i = 0; i < kFew; ++i) {
      float x[kUnit];
      unpack(x, d[i + kTaps - 1]);
      add(sum, x, c[i]);
    }
    before(sum);
#pragma unroll
    for (int i = 0; i < kFew; ++i) {
      const int64_t t = last - i;
      if (t < 0) continue;
      float x[kUnit], y[kUnit], w[kUnit], dv[kUnit] = {};
      unpack(x, d[i + kTaps - 1]);
      add(sum, x, c[i]);
      add(dv, sum);
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        if (j >= s.taps) continue;
        unpack(w, v[i + j]);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) w[k] *= x[k];
        add(dbias[j], w);
        keep(p.drk + (me.by_head(s, t) * s.taps + j) * s.K + me.column, packed(w));
        unpack(y, d[i + kTaps - 1 - j]);  // 0 beyond the end
        tap(w, rk[i][j], bias + j * s.K);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) dv[k] += w[k] * y[k];
      }
      keep(p.dv + me.at(s, t), packed(dv));
    }
  }
}

// Sums over the threads of each channel, in their order.
template <int L>
__device__ void store_bias(
    const InlineOutput& p, const float (&dbias)[kTaps][kUnit], float (&all)[kThreads * kUnit]
) {
  const InlineShape& s = p.shape;
#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kUnit; ++c) all[threadIdx.x * kUnit + c] = dbias[j][c];
    __syncthreads();
    const int i = int(threadIdx.x);
    if (j >= s.taps || i >= s.K) continue;
    float sum = 0.f;
    for (int row = 0; row < kThreads / L; ++row) sum += all[row * L * kUnit + i];
    p.dbias[(int64_t(blockIdx.x) * s.taps + j) * s.K + i] = sum;
  }
}

template <int L>
__global__ void __launch_bounds__(kThreads, 1)
    output_backward_kernel(const __grid_constant__ InlineOutput p) {
  __shared__ float totals[2][kWarps][L * kUnit];
  __shared__ float all[kThreads * kUnit];
  Before<L> before{totals};
  if (blockIdx.y == 0) return factor_gradients<L>(p, Place<L>(p.shape), before);
  const Place<L, kFew> me(p.shape);
  float dbias[kTaps][kUnit] = {};
  value_gradients<L>(p, me, before, dbias);
  store_bias<L>(p, dbias, all);
}

struct StartOutput {
  const InlineOutput& p;
  cudaStream_t stream;
  template <int L>
  void run() const {
    if (p.dy != nullptr)
      output_backward_kernel<L><<<blocks(p.shape, 2), kThreads, 0, stream>>>(p);
    else
      output_kernel<L><<<blocks(p.shape), kThreads, 0, stream>>>(p);
  }
};

}  // namespace

cudaError_t inline_output(const InlineOutput& p, cudaStream_t stream) {
  return for_head(p.shape, StartOutput{p, stream});
}

}  // namespace horner::cuda
