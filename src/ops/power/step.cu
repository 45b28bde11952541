// `power`, one token: S' = a S + m(k)^T v~, o = (W m(q)) S' (/ den). Bound by the state's bytes, in and out.
#include "cuda/sm90.cuh"
#include "cuda/types.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRows = 160;  // features whose part of the state is in shared memory at a time

// four(e) for 16 bytes at a time of `count` numbers that begin `skew` numbers after such a boundary; one(e) at the edges.
template <class Four, class One>
__device__ void for_units(int count, int skew, Four&& four, One&& one) {
  const int head = min((4 - skew) % 4, count), units = (count - head) / 4, rest = head + 4 * units;
  for (int e = threadIdx.x; e < units; e += kThreads) four(head + 4 * e);
  if (int(threadIdx.x) < head) one(int(threadIdx.x));
  if (int(threadIdx.x) < count - rest) one(rest + int(threadIdx.x));
}

// A block owns one head of k and v and the query heads that read it. The state goes through shared memory, where it lies
// to 16 bytes as in memory, since its rows are not aligned; a warp takes every 8th feature, a lane its columns 32 apart.
// Shared memory: kRows rows of the state, m(k), W m(q), v~, and each warp's share of the sums.
template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads) step_kernel(const __grid_constant__ PowerStep p) {
  extern __shared__ __align__(16) float memory[];
  const int F = p.features, columns = p.V + (p.normalise ? 1 : 0);
  const int64_t offset = int64_t(blockIdx.x) * F * columns;
  const int skew = int(offset % 4);
  float* state = memory + skew;                      // (kRows, columns)
  float* mk = memory + 3 + min(F, kRows) * columns;  // (F)
  float* mq = mk + F;                                // (F)
  float* value = mq + F;                             // (32 kColumns)
  float* sums = value + 32 * kColumns;               // (kWarps, 32 kColumns)
  const int64_t b = blockIdx.x / p.G, head = blockIdx.x % p.G;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = p.H / p.G;
  const T* k = static_cast<const T*>(p.k) + b * p.k_b + head * p.k_h;
  const T* v = static_cast<const T*>(p.v) + b * p.v_b + head * p.v_h;
  const float* first = p.first ? p.first + offset : nullptr;
  float* last = p.last ? p.last + offset : nullptr;
  const auto load = [&](int start) {
    const int count = min(kRows, F - start) * columns;
    const float* from = first + int64_t(start) * columns;
    const auto one = [&](int e) { copy_number_async(state + e, from + e, true); };
    if (!first) {
      for (int e = threadIdx.x; e < count; e += kThreads) state[e] = 0.f;
    } else if (reinterpret_cast<uintptr_t>(p.first) % 16 == 0) {
      for_units(
          count, skew, [&](int e) { copy_async(shared_address(state + e), from + e, true); }, one
      );
    } else {
      for (int e = threadIdx.x; e < count; e += kThreads) one(e);
    }
    copy_commit();
  };
  load(0);  // on its way while the features are made
  const float decay = p.g ? exp2f(p.g[b * p.G + head] * 1.4426950408889634f) : 1.f;
  for (int c = threadIdx.x; c < 32 * kColumns; c += kThreads)
    value[c] = c < p.V ? wide<float>(v[c]) : c == p.V ? 1.f : 0.f;

  for (int n = 0; n < group; ++n) {
    const int64_t h = head * group + n;
    const T* q = static_cast<const T*>(p.q) + b * p.q_b + h * p.q_h;
    // Feature f: 1, then x_i, then x_i x_j with i <= j.
    for (int i = int(threadIdx.x) - 1; i < p.K; i += kThreads) {
      const float ki = i < 0 ? 1.f : wide<float>(k[i]), qi = i < 0 ? 1.f : wide<float>(q[i]);
      if (i < 0 || p.order > 0) mk[1 + i] = ki, mq[1 + i] = (i < 0 ? p.c0 : p.c1) * qi;
    }
    for (int e = threadIdx.x; p.order > 1 && e < p.K * p.K; e += kThreads) {
      const int i = e / p.K, j = e % p.K;
      if (i > j) continue;
      const int f = 1 + p.K + i * p.K - i * (i - 1) / 2 + j - i;
      mk[f] = wide<float>(k[i]) * wide<float>(k[j]);
      mq[f] = (i == j ? 1.f : 2.f) * p.c2 * wide<float>(q[i]) * wide<float>(q[j]);
    }
    float y[kColumns] = {}, v_own[kColumns];
    for (int start = 0; start < F; start += kRows) {
      if (n > 0 || start > 0) load(start);
      copy_wait<0>();
      __syncthreads();
      const int rows = min(kRows, F - start);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) v_own[c] = value[lane + 32 * c];
#pragma unroll 4
      for (int r = warp; r < rows; r += kWarps) {
        const float kf = mk[start + r], qf = mq[start + r];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const int column = lane + 32 * c;
          if (column >= columns) continue;
          const float kept = decay * state[r * columns + column] + kf * v_own[c];
          state[r * columns + column] = kept;
          y[c] += qf * kept;
        }
      }
      __syncthreads();
      if (last && n == 0) {
        float* to = last + int64_t(start) * columns;
        for_units(
            rows * columns,
            skew,
            [&](int e) {
              __stcs(
                  reinterpret_cast<float4*>(to + e), *reinterpret_cast<const float4*>(state + e)
              );
            },
            [&](int e) { __stcs(to + e, state[e]); }
        );
      }
      if (start + kRows < F || n + 1 < group) __syncthreads();
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[(warp * kColumns + c) * 32 + lane] = y[c];
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += kThreads) {
      float sum = 0.f;
      for (int w = 0; w < kWarps; ++w) sum += sums[w * 32 * kColumns + c];
      sums[c] = sum;  // column c of warp 0's share is read by this thread alone
    }
    __syncthreads();
    float den = p.normalise ? sums[p.V] : 1.f;
    if (p.clamps) den = fmaxf(den, p.eps);
    T* o = static_cast<T*>(p.o) + (b * p.H + h) * p.V;
    for (int c = threadIdx.x; c < p.V; c += kThreads) o[c] = narrow<T>(sums[c] / den);
  }
}

template <class T, int kColumns>
cudaError_t launch(const PowerStep& p, cudaStream_t stream) {
  const int columns = p.V + (p.normalise ? 1 : 0), rows = p.features < kRows ? p.features : kRows;
  const int bytes =
      int(sizeof(float)) * (3 + rows * columns + 2 * p.features + 32 * kColumns * (1 + kWarps));
  const auto kernel = step_kernel<T, kColumns>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  kernel<<<unsigned(p.B * p.G), kThreads, bytes, stream>>>(p);
  return cudaGetLastError();
}

template <class T>
cudaError_t choose(const PowerStep& p, cudaStream_t stream) {
  const int columns = p.V + (p.normalise ? 1 : 0);
  if (columns <= 96) return launch<T, 3>(p, stream);
  return launch<T, 5>(p, stream);
}

}  // namespace

cudaError_t power_step(const PowerStep& p, cudaStream_t stream) {
  return p.bf16 ? choose<__nv_bfloat16>(p, stream) : choose<float>(p, stream);
}

}  // namespace horner::cuda
