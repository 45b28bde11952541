// Adds the tokens of the ring to the state (lazy.cuh). The time is that of reading and writing the state once.
#include "cuda/flat.cuh"
#include "cuda/launch.cuh"
#include "ops/lazy/tokens.cuh"

namespace horner::cuda {
namespace {

// update (F,kMostFold): a_j m(k_j) of every token j, by rows of the state; 0 from token n on.
template <bool kSeries, int kThreads, class Keys>
__device__ __forceinline__ void compute_updates(
    float* update, const LazyTokens& p, const Keys& keys, const float* left, int gates, int t
) {
  for_rows<kSeries, kThreads>(p, t, [&](int row, int order, int i, int j) {
    float u[kMostFold];
#pragma unroll
    for (int n = 0; n < kMostFold; ++n)  // no branch, so that all loads are issued at once
      u[n] = monomial(keys.ring + min(n, p.n - 1) * keys.stride, order, i, j);
#pragma unroll
    for (int n = 0; n < kMostFold; ++n) {
      if (n >= p.n) u[n] = 0.f;
      if (gates > 0 && n < p.n) u[n] *= left[gates == 1 ? n : n * gates + row];
      update[row * kMostFold + n] = u[n];
    }
  });
}

// Four columns of every value, and 1 for the column of ones. The four lie in one row of the state or in two: `split` of them
// in the first.
template <class T>
__device__ __forceinline__ void load_values(
    float (&v)[kMostFold][4],
    const LazyTokens& p,
    const WaitingRows<T>& values,
    int column,
    int split,
    int C
) {
  T raw[kMostFold][4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int own = c < split ? column + c : column + c - C;
#pragma unroll
    for (int j = 0; j < kMostFold; ++j)
      raw[j][c] = values.ring[min(j, p.n - 1) * values.stride + min(own, p.V - 1)];
#pragma unroll
    for (int j = 0; j < kMostFold; ++j) v[j][c] = own < p.V ? wide<float>(raw[j][c]) : 1.f;
  }
}

// s += sum_j u_j v_j for four columns; u(column, four tokens).
template <class F>
__device__ __forceinline__ void add_tokens(float (&s)[4], const float (&v)[kMostFold][4], F&& u) {
#pragma unroll
  for (int j = 0; j < kMostFold; j += 4) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float4 a = u(c, j / 4);
      s[c] += a.x * v[j][c];
      s[c] += a.y * v[j + 1][c];
      s[c] += a.z * v[j + 2][c];
      s[c] += a.w * v[j + 3][c];
    }
  }
}

// A block owns one key/value head. Shared memory: units of the state that are loading; a_j m(k_j) of every token, by rows of
// the state; decays. A thread owns four columns and keeps these columns of every value in registers.
template <class T, bool kSeries, int kThreads, int kRing, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) fold_kernel(
    const __grid_constant__ LazyTokens p, const __grid_constant__ Flat flat, float* next
) {
  HORNER_DYNAMIC_MEMORY(memory);
  float* const update = reinterpret_cast<float*>(memory) + 4 * kRing * kThreads;  // (F,kMostFold)
  float* const kept = update + kMostFold * p.features;                            // (gates): A
  float* const left = kept + p.gates();                                           // (n,gates): a_j
  const int t = int(threadIdx.x), kv = int(blockIdx.x), gates = p.gates();
  const FlatPart part(flat, kv, t);
  const int64_t first = part.offset + part.lead + 4 * t;
  const FlatStream<kThreads, kRing> stream{
      reinterpret_cast<float4*>(memory) + t, p.S ? p.S + first : nullptr, part.mine, flat.stride};
  stream.start();
  const WaitingRows<T> keys(p.ring_k, p, kv, p.K), values(p.ring_v, p, kv, p.V);
  if (gates > 0) {
    decays<kThreads>(p, WaitingRows<float>(p.ring_g, p, kv, gates), t, left, kept);
    __syncthreads();
  }
  compute_updates<kSeries, kThreads>(update, p, keys, left, gates, t);
  int row = flat.row(part.lead + 4 * t);
  const int column = part.lead + 4 * t - row * flat.C, split = min(flat.C - column, 4);
  float v[kMostFold][4];
  load_values(v, p, values, column, split, flat.C);
  __syncthreads();
  const float whole = gates == 1 ? kept[0] : 1.f;
  if (t < part.lead + part.tail) {
    const int e = t < part.lead ? t : t + 4 * part.units, r = flat.row(e);
    float s = p.S ? (gates > 1 ? kept[r] : whole) * p.S[part.offset + e] : 0.f;
    const int c = e - r * flat.C;
    for (int j = 0; j < p.n; ++j)
      s += update[r * kMostFold + j] *
           (c < p.V ? wide<float>(values.ring[j * values.stride + c]) : 1.f);
    next[part.offset + e] = s;
  }
#pragma unroll 1
  for (int i = 0; i < stream.mine; ++i, row += flat.rows) {
    const float4 unit = stream.take(i);
    const float A = gates > 1 ? kept[row] : whole, below = gates > 1 ? kept[row + 1] : whole;
    float s[4] = {A * unit.x, unit.y, unit.z, unit.w};
#pragma unroll
    for (int c = 1; c < 4; ++c) s[c] *= c < split ? A : below;
    const auto* upper = reinterpret_cast<const float4*>(update + row * kMostFold);
    if (split == 4) {
      add_tokens(s, v, [&](int, int j) { return upper[j]; });
    } else {
      const auto* lower = upper + kMostFold / 4;
      add_tokens(s, v, [&](int c, int j) { return c < split ? upper[j] : lower[j]; });
    }
    *reinterpret_cast<float4*>(next + first + 4 * i * flat.stride) = {s[0], s[1], s[2], s[3]};
  }
}

template <class T, bool kSeries, int kThreads, int kRing, int kBlocks>
cudaError_t run(const LazyTokens& p, float* next, cudaStream_t stream) {
  const int numbers = 4 * kRing * kThreads + kMostFold * p.features + (p.n + 1) * p.gates();
  const Flat flat(p.features, p.V + (p.normalise ? 1 : 0), kThreads);
  return launch(
      fold_kernel<T, kSeries, kThreads, kRing, kBlocks>,
      p.B * p.G,
      kThreads,
      4 * size_t(numbers),
      stream,
      p,
      flat,
      next
  );
}

template <class T, bool kSeries>
cudaError_t choose(const LazyTokens& p, float* next, cudaStream_t stream) {
  const int least = Flat::least(p.V + (p.normalise ? 1 : 0));
  const bool large = int64_t(p.features) * p.V > 65536;
  return large || least > 128 ? run<T, kSeries, 288, 4, 1>(p, next, stream) : run < T, kSeries, 128,
         4, sizeof(T) == 4 ? 3 : 4 > (p, next, stream);
}

}  // namespace

cudaError_t lazy_fold(const LazyTokens& p, float* next, cudaStream_t stream) {
  if (p.bf16)
    return p.series ? choose<__nv_bfloat16, true>(p, next, stream)
                    : choose<__nv_bfloat16, false>(p, next, stream);
  return p.series ? choose<float, true>(p, next, stream) : choose<float, false>(p, next, stream);
}

}  // namespace horner::cuda
