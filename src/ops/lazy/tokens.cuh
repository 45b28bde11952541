// The tokens that wait to join a state (lazy.cuh), as a block sees them.
#pragma once

#include <type_traits>

#include "cuda/types.cuh"
#include "ops/lazy/lazy.cuh"

namespace horner::cuda {

// Rows of one key/value head: those in the ring, then that of the current token if it is not in the ring yet.
template <class T>
struct WaitingRows {
  T* ring;
  int stride, waits;
  const T* own = nullptr;

  __device__ WaitingRows(void* ring, const LazyTokens& p, int kv, int width)
      : ring(static_cast<T*>(ring) + (int64_t(kv / p.G) * p.fold * p.G + kv % p.G) * width),
        stride(p.G * width),
        waits(p.n) {}
  __device__ WaitingRows(
      void* all, const LazyTokens& p, int kv, int width, const void* token, int64_t at
  )
      : WaitingRows(all, p, kv, width) {
    waits = p.n - 1;
    own = static_cast<const T*>(token) + at;
  }
  __device__ const T* operator[](int j) const { return j < waits ? ring + j * stride : own; }
  template <int kThreads>
  __device__ void keep(int t, int width) const {
#pragma unroll 1
    for (int i = t; i < width; i += kThreads) ring[waits * stride + i] = own[i];
  }
};

// Decay per head, by a warp: calls left(j, a_j) for each token and returns A in all lanes.
template <class F>
__device__ float decay(const WaitingRows<float>& rows, int n, F&& left) {
  const int lane = int(threadIdx.x) % 32;
  float sum = lane < n ? *rows[lane] : 0.f;
#pragma unroll
  for (int d = 1; d < kMostFold; d *= 2) sum += __shfl_down_sync(~0u, sum, d);  // g_j + .. + g_n
  const float after = __shfl_down_sync(~0u, sum, 1);
  if (lane < n) left(lane, expf(after));
  return expf(__shfl_sync(~0u, sum, 0));
}
// Decay per key, by a thread: the same for key i.
template <class F>
__device__ float decay(const WaitingRows<float>& rows, int n, int i, F&& left) {
  float sum = 0.f;
#pragma unroll 4
  for (int j = n - 1; j >= 0; --j) {
    const float g = rows[j][i];
    left(j, expf(sum));
    sum += g;
  }
  return expf(sum);
}
// All decays, by kThreads threads (this one is t): a_j (n,gates) and A (gates).
template <int kThreads>
__device__ void decays(
    const LazyTokens& p, const WaitingRows<float>& g, int t, float* left, float* kept
) {
  const int gates = p.gates();
  if (gates == 1 && t < 32) {
    const float A = decay(g, p.n, [&](int j, float a) { left[j] = a; });
    if (t == 0) kept[0] = A;
  }
  for (int i = t; gates > 1 && i < gates; i += kThreads)
    kept[i] = decay(g, p.n, i, [&](int j, float a) { left[j * gates + i] = a; });
}

// f(row, order, i, j) for each row of the state: m is 1, then x_i, then x_i x_j with i <= j.
template <bool kSeries, int kThreads, class F>
__device__ void for_rows(const LazyTokens& p, int t, F&& f) {
  if (kSeries && t == 0) f(0, 0, 0, 0);
  if (!kSeries || p.order > 0)
    for (int i = t; i < p.K; i += kThreads) f(kSeries ? 1 + i : i, 1, i, 0);
#pragma unroll 1
  for (int e = t; kSeries && p.order > 1 && e < p.K * p.K; e += kThreads) {
    const int i = e / p.K, j = e % p.K;
    if (i <= j) f(1 + p.K + i * p.K - i * (i - 1) / 2 + j - i, 2, i, j);
  }
}
template <class T>
__device__ float monomial(const T* x, int order, int i, int j) {
  if (order == 0) return 1.f;
  return order == 1 ? wide<float>(x[i]) : wide<float>(x[i]) * wide<float>(x[j]);
}

}  // namespace horner::cuda
