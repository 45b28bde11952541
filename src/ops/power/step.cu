// `power`, one token: S' = a S + m(k)^T v~, o = (W m(q)) S' (/ den). The time is that of reading and writing the state.
#include "cuda/decay.cuh"
#include "cuda/flat.cuh"
#include "cuda/launch.cuh"
#include "cuda/types.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kMostKeys = 64;

// Pairs (m(k), W m(q)), feature f: 1, then x_i, then x_i x_j with i <= j.
template <int kThreads>
__device__ __forceinline__ void compute_features(
    float2* features, const float* keys, const float* queries, const PowerStep& p, int t
) {
  if (t == 0) features[0] = {1.f, p.c0};
  if (p.order > 0 && t < p.K) features[1 + t] = {keys[t], p.c1 * queries[t]};
  for (int e = t; p.order > 1 && e < p.K * p.K; e += kThreads) {
    const int i = e / p.K, j = e % p.K;
    if (i > j) continue;
    const float weight = i == j ? p.c2 : 2.f * p.c2;
    features[1 + p.K + i * p.K - i * (i - 1) / 2 + j - i] = {
        keys[i] * keys[j], weight * queries[i] * queries[j]};
  }
}

// The state of one head as a flat vector: `lead` numbers, then aligned units of four, then the rest. The numbers outside
// the units are loose.
struct FlatHead {
  int64_t offset;
  int lead, units, loose;

  __device__ explicit FlatHead(const Flat& flat) {
    offset = int64_t(blockIdx.x) * flat.count;
    lead = min(int(-offset & 3), flat.count);
    units = (flat.count - lead) / 4;
    loose = flat.count - 4 * units;
  }
  __device__ int loose_at(int i) const { return i < lead ? i : i + 4 * units; }
};

// sums[c]: the sum of column c over the shares of all threads, and over the numbers outside units.
template <int kThreads>
__device__ __forceinline__ void sum_columns(
    float* sums, const float* ends, const FlatHead& x, const Flat& flat, int t
) {
  for (int c = t; c < flat.C; c += kThreads) {
    float sum = 0.f;
    for (int r = 0; r < flat.rows; ++r) sum += sums[r * flat.C + c];
    for (int i = 0; i < x.loose; ++i) sum += x.loose_at(i) % flat.C == c ? ends[i] : 0.f;
    sums[c] = sum;  // only this thread reads the shares of column c
  }
}

// o = (W m(q)) S' / den
template <class T, int kThreads>
__device__ __forceinline__ void store_o(
    const float* sums, const PowerStep& p, int64_t head, int t
) {
  float den = p.normalise ? sums[p.V] : 1.f;
  if (p.clamps) den = fmaxf(den, p.eps);
  T* o = static_cast<T*>(p.o) + head * p.V;
  for (int c = t; c < p.V; c += kThreads) o[c] = narrow<T>(sums[c] / den);
}

// One number of the state: S' = a S + m(k)^T v~, o = (W m(q)) S'. feature: (m(k), W m(q)).
__device__ __forceinline__ float step(float s, float decay, float2 feature, float v, float& sum) {
  s = decay * s + feature.x * v;
  sum += feature.y * s;
  return s;
}

// Column c is the sum of shares c, c + C, ..
__device__ __forceinline__ void store_shares(
    float* sums, const float (&y)[4], const FlatHead& x, const Flat& flat, int t
) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int share = x.lead + 4 * t + i, all = 4 * flat.stride;
    if (t < flat.stride) sums[share < all ? share : share - all] = y[i];
  }
}

template <class T>
__device__ __forceinline__ void load_token(
    float* keys, float* queries, const PowerStep& p, int b, int head, int64_t query_head, int t
) {
  if (t >= p.K) return;
  keys[t] = wide<float>(static_cast<const T*>(p.k)[b * p.k_b + head * p.k_h + t]);
  queries[t] = wide<float>(static_cast<const T*>(p.q)[b * p.q_b + query_head * p.q_h + t]);
}

// kAtOnce units of the state, flat.stride apart.
template <int kAtOnce>
__device__ __forceinline__ void load_units(
    float4 (&S)[kAtOnce], const PowerStep& p, const FlatHead& x, const Flat& flat, int unit
) {
  const float* from = p.first + x.offset + x.lead + 4 * unit;
#pragma unroll
  for (int j = 0; j < kAtOnce; ++j, from += 4 * flat.stride) {
    const bool in = p.first && unit + j * flat.stride < x.units;
    S[j] = in ? *reinterpret_cast<const float4*>(from) : float4{0.f, 0.f, 0.f, 0.f};
  }
}

// A number of the state outside the units; returns its share of o.
__device__ __forceinline__ float step_loose(
    const PowerStep& p, int64_t at, float decay, float2 feature, float v, bool stores
) {
  float sum = 0.f;
  const float next = step(p.first ? p.first[at] : 0.f, decay, feature, v, sum);
  if (p.last && stores) p.last[at] = next;
  return sum;
}

// A block owns one key/value head and the query heads that read it. A thread owns units of the state, kAtOnce at a time, in
// registers. Shared memory: pairs (m(k), W m(q)), k, q, and each thread's share of the sums.
template <class T, int kThreads, int kAtOnce, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    step_kernel(const __grid_constant__ PowerStep p, const __grid_constant__ Flat flat) {
  extern __shared__ __align__(16) float2 features[];  // (F)
  __shared__ float sums[4 * kThreads], ends[6], keys[kMostKeys], queries[kMostKeys];
  wait_for_earlier_kernels();
  const int t = int(threadIdx.x), group = p.H / p.G;
  const int b = int(blockIdx.x) / p.G, head = int(blockIdx.x) % p.G;
  const FlatHead x(flat);
  const int own = t < flat.stride ? t : x.units;  // its first unit
  float4 S[kAtOnce];
  const auto load = [&](int unit) { load_units(S, p, x, flat, unit); };
  load(own);  // arrives while the features are computed
  const auto value = [&](int column) {
    const T* v = static_cast<const T*>(p.v) + b * p.v_b + head * p.v_h;
    return column < p.V ? wide<float>(v[column]) : 1.f;
  };
  const float decay = p.g ? exp2f(p.g[blockIdx.x] * kLog2e) : 1.f;
  int row[4];
  float v_own[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    row[i] = (x.lead + 4 * t + i) / flat.C;
    v_own[i] = value(x.lead + 4 * t + i - row[i] * flat.C);
  }
  for (int n = 0; n < group; ++n) {
    load_token<T>(keys, queries, p, b, head, head * group + n, t);
    __syncthreads();
    compute_features<kThreads>(features, keys, queries, p, t);
    __syncthreads();
    float y[4] = {};
    const float2* feature = features;
    for (int unit = own; unit < x.units; unit += kAtOnce * flat.stride) {
      if (unit != own || (n > 0 && own + kAtOnce * flat.stride < x.units)) load(unit);
      float* to = p.last + x.offset + x.lead + 4 * unit;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j, to += 4 * flat.stride, feature += flat.rows) {
        if (unit + j * flat.stride >= x.units) break;
        const float4 next = {
            step(S[j].x, decay, feature[row[0]], v_own[0], y[0]),
            step(S[j].y, decay, feature[row[1]], v_own[1], y[1]),
            step(S[j].z, decay, feature[row[2]], v_own[2], y[2]),
            step(S[j].w, decay, feature[row[3]], v_own[3], y[3])};
        if (p.last && n == 0) *reinterpret_cast<float4*>(to) = next;
      }
    }
    if (t < x.loose) {
      const int e = x.loose_at(t), r = e / flat.C;
      const float v = value(e - r * flat.C);
      ends[t] = step_loose(p, x.offset + e, decay, features[r], v, n == 0);
    }
    store_shares(sums, y, x, flat, t);
    __syncthreads();
    sum_columns<kThreads>(sums, ends, x, flat, t);
    __syncthreads();
    store_o<T, kThreads>(sums, p, int64_t(blockIdx.x) * group + n, t);
  }
}

template <class T, int kThreads, int kAtOnce, int kBlocks>
cudaError_t run(const PowerStep& p, cudaStream_t stream) {
  const auto kernel = step_kernel<T, kThreads, kAtOnce, kBlocks>;
  const size_t bytes = sizeof(float2) * size_t(p.features);
  const Flat flat(p.features, p.V + (p.normalise ? 1 : 0), kThreads);
  return launch_early(kernel, p.B * p.G, kThreads, bytes, stream, p.overlaps, p, flat);
}

template <class T>
cudaError_t choose(const PowerStep& p, cudaStream_t stream) {
  if (p.features > 512)
    return run<T, 1024, 4, 1>(p, stream);  // large states: few blocks fill a GPU
  return p.V >= 96 ? run<T, 288, 10, 3>(p, stream) : run<T, 288, 5, 4>(p, stream);
}

}  // namespace

cudaError_t power_step(const PowerStep& p, cudaStream_t stream) {
  return p.bf16 ? choose<__nv_bfloat16>(p, stream) : choose<float>(p, stream);
}

}  // namespace horner::cuda
