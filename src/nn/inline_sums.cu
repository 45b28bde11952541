// A block owns one head of one batch row and walks over time. L = K / 8 lanes own a token of a warp, with 8 channels each, and
// 2 or 4 tokens that follow each other. Sums over time: over a thread's tokens, over the threads of
// a warp, over the warps in their order, and a carry in registers. Backwards in time the tokens are counted from the end.
#include "nn/inline_sums.cuh"

#include "cuda/units.cuh"
#include "nn/fused/functions.h"

namespace horner::cuda {
namespace {

using T16 = __nv_bfloat16;
constexpr int kThreads = 256, kWarps = kThreads / 32, kTaps = kInlineTaps;
constexpr int kEach = 4, kFew = 2;  // tokens of a thread; kFew where it reads the taps, too

__device__ uint4 fetch(const T16* from, bool there) {
  return there ? __ldg(reinterpret_cast<const uint4*>(from)) : uint4{0, 0, 0, 0};
}
__device__ void unpack(float (&x)[kUnit], const uint4& bits) {
  const T16* all = reinterpret_cast<const T16*>(&bits);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) x[c] = wide<float>(all[c]);
}
__device__ uint4 packed(const float (&x)[kUnit]) {
  uint4 bits;
  T16* all = reinterpret_cast<T16*>(&bits);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) all[c] = narrow<T16>(x[c]);
  return bits;
}
__device__ void keep(T16* to, const uint4& bits) { *reinterpret_cast<uint4*>(to) = bits; }

__device__ void add(float (&x)[kUnit], const float (&y)[kUnit], float factor = 1.f) {
#pragma unroll
  for (int c = 0; c < kUnit; ++c) x[c] += factor * y[c];
}
__device__ float dot(const float (&x)[kUnit], const float (&y)[kUnit]) {
  float sum = 0.f;
#pragma unroll
  for (int c = 0; c < kUnit; ++c) sum += x[c] * y[c];
  return sum;
}
template <int L>
__device__ float over_head(float x) {
#pragma unroll
  for (int step = L / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

template <int L, int kOwn = kEach>
struct Place {
  static constexpr int kTokens = kThreads / L * kOwn;  // of a block at once
  int64_t b;
  int h, column, first;  // first: of the thread's tokens, within the block's
  __device__ explicit Place(const InlineShape& s)
      : b(int64_t(blockIdx.x) / s.H),
        h(int(int64_t(blockIdx.x) % s.H)),
        column(int(threadIdx.x) % L * kUnit),
        first(int(threadIdx.x) / L * kOwn) {}
  __device__ int64_t row(const InlineShape& s, int64_t t) const {  // of (B,T,H)
    return (b * s.T + t) * s.H + h;
  }
  __device__ int64_t at(const InlineShape& s, int64_t t) const {  // of (B,T,H,K)
    return row(s, t) * s.K + column;
  }
  __device__ int64_t by_head(const InlineShape& s, int64_t t) const {  // row of (H,B,T)
    return (h * s.B + b) * s.T + t;
  }
};

// Sums over the threads before: x, a thread's own sum, becomes the sum of all tokens before its own.
template <int L>
struct Before {
  float (*totals
  )[kWarps][L * kUnit];  // [2] in shared memory: two calls take turns, with one barrier each
  int turn = 0;
  float carry[kUnit] = {};

  __device__ void operator()(float (&x)[kUnit]) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll
    for (int step = L; step < 32; step *= 2) {
#pragma unroll
      for (int c = 0; c < kUnit; ++c) {
        const float below = __shfl_up_sync(~0u, x[c], step);
        if (lane >= step) x[c] += below;
      }
    }
    float(&own)[kWarps][L * kUnit] = totals[turn++ & 1];
    if (lane >= 32 - L) {
#pragma unroll
      for (int c = 0; c < kUnit; ++c) own[warp][lane % L * kUnit + c] = x[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kUnit; ++c) {
      const float below = __shfl_up_sync(~0u, x[c], L);
      x[c] = lane >= L ? below : 0.f;
    }
    add(x, carry);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      float total[kUnit];
#pragma unroll
      for (int c = 0; c < kUnit; ++c) total[c] = own[w][lane % L * kUnit + c];
      if (w < warp) add(x, total);
      add(carry, total);
    }
  }
};

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

template <class T, int L>
__global__ void __launch_bounds__(kThreads) mean_kernel(const __grid_constant__ RunningMean p) {
  __shared__ float totals[2][kWarps][L * kUnit];
  const InlineShape& s = p.shape;
  const Place<L> me(s);
  Before<L> before{totals};
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    float x[kEach][kUnit] = {}, sum[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (start + i < s.T) load_unit(x[i], static_cast<const T*>(p.x) + me.at(s, start + i));
#pragma unroll
    for (int i = 0; i < kEach; ++i) add(sum, x[i]);
    before(sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (start + i >= s.T) continue;
      add(sum, x[i]);
      float y[kUnit];
#pragma unroll
      for (int c = 0; c < kUnit; ++c) y[c] = sum[c] / float(start + i + 1);
      keep(p.mean + me.by_head(s, start + i) * s.K + me.column, packed(y));
    }
  }
}

// dx_t = sum_{s >= t} dmean_s / n_s
template <class T, int L>
__global__ void __launch_bounds__(kThreads)
    mean_backward_kernel(const __grid_constant__ RunningMean p) {
  __shared__ float totals[2][kWarps][L * kUnit];
  const InlineShape& s = p.shape;
  const Place<L> me(s);
  Before<L> before{totals};
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    const int64_t last = s.T - 1 - start;
    uint4 d[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      d[i] = fetch(p.dmean + me.by_head(s, last - i) * s.K + me.column, last >= i);
    float sum[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float x[kUnit];
      unpack(x, d[i]);
      add(sum, x, last >= i ? 1.f / float(last - i + 1) : 0.f);
    }
    before(sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (last < i) continue;
      float x[kUnit];
      unpack(x, d[i]);
      add(sum, x, 1.f / float(last - i + 1));
      store_unit(static_cast<T*>(p.dx) + me.at(s, last - i), sum);
    }
  }
}

__global__ void __launch_bounds__(kThreads) gelu_kernel(const __grid_constant__ BiasGelu p) {
  const InlineShape& s = p.shape;
  const int64_t of_head = s.B * s.T * s.K;
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (at >= of_head * s.H) return;
  float z[kUnit], b[kUnit], d[kUnit];
  load_unit(z, p.z + at);
  load_unit(b, p.b + at / of_head * s.K + at % s.K);
  if (p.dy != nullptr) load_unit(d, p.dy + at);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) {
    const Gelu<float> y = gelu_erf(z[c] + b[c]);
    z[c] = p.dy != nullptr ? d[c] * y.slope : y.value;
  }
  store_unit(p.y + at, z);
}

dim3 blocks(const InlineShape& s, int directions = 1) {
  return {unsigned(s.B * s.H), unsigned(directions)};
}

// start.run<L>() with the L lanes of a head.
template <class Start>
cudaError_t for_head(const InlineShape& s, const Start& start) {
  switch (s.K) {
    case 16: start.template run<2>(); break;
    case 32: start.template run<4>(); break;
    case 64: start.template run<8>(); break;
    case 128: start.template run<16>(); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
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
template <class T>
struct StartMean {
  const RunningMean& p;
  cudaStream_t stream;
  template <int L>
  void run() const {
    if (p.dmean != nullptr)
      mean_backward_kernel<T, L><<<blocks(p.shape), kThreads, 0, stream>>>(p);
    else
      mean_kernel<T, L><<<blocks(p.shape), kThreads, 0, stream>>>(p);
  }
};

}  // namespace

cudaError_t inline_weights(const InlineWeights& p, cudaStream_t stream) {
  return for_head(p.shape, StartWeights{p, stream});
}
cudaError_t inline_output(const InlineOutput& p, cudaStream_t stream) {
  return for_head(p.shape, StartOutput{p, stream});
}
cudaError_t running_mean(const RunningMean& p, cudaStream_t stream) {
  return p.bf16 ? for_head(p.shape, StartMean<T16>{p, stream})
                : for_head(p.shape, StartMean<float>{p, stream});
}
cudaError_t bias_gelu(const BiasGelu& p, cudaStream_t stream) {
  const int64_t each = int64_t(kThreads) * kUnit,
                count = p.shape.B * p.shape.T * p.shape.H * p.shape.K;
  gelu_kernel<<<unsigned((count + each - 1) / each), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
