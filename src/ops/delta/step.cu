// `delta`, one token: the state is read once and written once.
//
//   e = v - k (a S)        S = a S + b k^T e        o = scale q S        a per head, or per key (a row of S)
#include "cuda/launch.cuh"
#include "cuda/types.cuh"
#include "ops/delta/delta.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 256, kLanes = 16, kColumns = 4 * kLanes, kParts = kThreads / kLanes;

// x S over the rows of one thread.
template <int kRows>
__device__ __forceinline__ float4 product(const float* x, const float4 (&S)[kRows], int part) {
  float4 sum = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const float a = x[part + kParts * j];
    sum.x += a * S[j].x, sum.y += a * S[j].y, sum.z += a * S[j].z, sum.w += a * S[j].w;
  }
  return sum;
}

// S = a S, one decay a row
template <int kRows>
__device__ __forceinline__ void decay_rows(
    float4 (&S)[kRows], const float* decays, int K, int part
) {
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const float a = decays[min(part + kParts * j, K - 1)];  // rows from K on are 0
    S[j].x *= a, S[j].y *= a, S[j].z *= a, S[j].w *= a;
  }
}

// e = v - a k S, then S = a S + b k^T e, stored at p.last + corner.
template <int kRows>
__device__ __forceinline__ void update(
    float4 (&S)[kRows],
    float4& e,
    float a,
    float beta,
    const float4 (&known)[kParts][kLanes],
    const float* keys,
    const DeltaStep& p,
    int64_t corner,
    bool inside,
    int part,
    int lane
) {
#pragma unroll 4
  for (int m = 0; m < kParts; ++m) {
    const float4 u = known[m][lane];
    e.x -= a * u.x, e.y -= a * u.y, e.z -= a * u.z, e.w -= a * u.w;
  }
  float* to = p.last + corner;
#pragma unroll
  for (int j = 0; j < kRows; ++j, to += kParts * p.V) {
    const float x = beta * keys[part + kParts * j];
    S[j].x = a * S[j].x + x * e.x, S[j].y = a * S[j].y + x * e.y;
    S[j].z = a * S[j].z + x * e.z, S[j].w = a * S[j].w + x * e.w;
    if (p.last && inside && part + kParts * j < p.K) __stcs(reinterpret_cast<float4*>(to), S[j]);
  }
}

// A block owns 64 columns of the state of one (b, key/value head). A thread owns four columns of every 16th row, in
// registers. The query heads of a group read the state one after the other.
template <class T, int kRows, bool kPerKey>
__global__ void __launch_bounds__(kThreads, kRows > 8 ? 2 : 3)
    step_kernel(const __grid_constant__ DeltaStep p) {
  __shared__ float4 known[kParts][kLanes], asked[kParts][kLanes];  // k S, q S
  __shared__ float keys[kParts * kRows], queries[kParts * kRows];
  const int lane = int(threadIdx.x % kLanes), part = int(threadIdx.x / kLanes), group = p.k.group;
  const int blocks = (p.V + kColumns - 1) / kColumns, state = int(blockIdx.x) / blocks;
  const int b = state / p.G, head = state % p.G;
  const int column = int(blockIdx.x) % blocks * kColumns + 4 * lane;
  const bool inside = column < p.V;
  const auto row = [&](const Rows& x, int h) {
    return static_cast<const T*>(x.data) + b * x.b + h * x.h;
  };
  const int64_t corner = (int64_t(state) * p.K + part) * p.V + column;
  float4 S[kRows];
  const float* from = p.first + corner;
#pragma unroll
  for (int j = 0; j < kRows; ++j, from += kParts * p.V) {
    const bool in = p.first && inside && part + kParts * j < p.K;
    S[j] = in ? __ldcs(reinterpret_cast<const float4*>(from)) : float4{0.f, 0.f, 0.f, 0.f};
  }
  const int own = int(threadIdx.x);  // a row; all loads are issued before the first is used
  const auto load = [&](const T* x) { return own < p.K ? wide<float>(x[own]) : 0.f; };
  const float key_own = load(row(p.k, head)), query_own = load(row(p.q, head * group));
  const float g = p.g && !kPerKey ? p.g[state] : 0.f, beta = p.beta[state];
  float4 e = {0.f, 0.f, 0.f, 0.f};
  if (inside) {
    const T* v = row(p.v, head) + column;
    e = {wide<float>(v[0]), wide<float>(v[1]), wide<float>(v[2]), wide<float>(v[3])};
  }
  if (own < kParts * kRows) keys[own] = key_own, queries[own] = query_own;
  if constexpr (kPerKey) {
    __shared__ float decays[kParts * kRows];
    if (own < p.K) decays[own] = expf(p.g[int64_t(state) * p.K + own]);
    __syncthreads();
    decay_rows(S, decays, p.K, part);
  } else {
    __syncthreads();
  }
  known[part][lane] = product(keys, S, part);
  for (int n = 0; n < group; ++n) {
    if (n > 0 && own < kParts * kRows) queries[own] = load(row(p.q, head * group + n));
    __syncthreads();
    if (n == 0) {
      const float a = kPerKey ? 1.f : expf(g);
      update(S, e, a, beta, known, keys, p, corner, inside, part, lane);
    }
    asked[part][lane] = product(queries, S, part);
    __syncthreads();
    const int c = int(threadIdx.x), at = column - 4 * lane + c;
    if (c >= kColumns || at >= p.V) continue;
    float all = 0.f;
#pragma unroll
    for (int m = 0; m < kParts; ++m) all += reinterpret_cast<const float*>(asked[m])[c];
    T* o = static_cast<T*>(p.o) + (int64_t(state) * group + n) * p.V;
    o[at] = narrow<T>(float(p.scale) * all);  // o = scale q S
  }
}

template <class T, bool kPerKey>
cudaError_t run(const DeltaStep& p, cudaStream_t stream) {
  const int64_t blocks = p.B * p.G * ((p.V + kColumns - 1) / kColumns);
  const auto kernel = p.K <= 4 * kParts   ? step_kernel<T, 4, kPerKey>
                      : p.K <= 8 * kParts ? step_kernel<T, 8, kPerKey>
                                          : step_kernel<T, 16, kPerKey>;
  return launch(kernel, blocks, kThreads, size_t(0), stream, p);
}

template <class T>
cudaError_t run(const DeltaStep& p, cudaStream_t stream) {
  return p.per_key ? run<T, true>(p, stream) : run<T, false>(p, stream);
}

}  // namespace

cudaError_t delta_step(const DeltaStep& p, cudaStream_t stream) {
  switch (p.type) {
    case Type::f32: return run<float>(p, stream);
    case Type::f16: return run<__half>(p, stream);
    case Type::bf16: return run<__nv_bfloat16>(p, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace horner::cuda
