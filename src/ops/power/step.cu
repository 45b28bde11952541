// `power`, one token: S' = a S + m(k)^T v~, o = (W m(q)) S' (/ den). Bound by the state's bytes, in and out.
#include "cuda/types.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kAtOnce = 8;  // rows of the state that a warp has in flight

// A block owns one head of k and v and the `group` query heads that read it; a warp takes every 8th feature, a
// lane its columns 32 apart. Shared memory: m(k), W m(q), and each warp's share of the sums.
template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads) step_kernel(const __grid_constant__ PowerStep p) {
  extern __shared__ float memory[];
  const int F = p.features, columns = p.V + (p.normalise ? 1 : 0);
  float* mk = memory;                   // (F)
  float* mq = mk + F;                   // (F)
  float* value = mq + F;                // (columns)
  float* sums = value + 32 * kColumns;  // (kWarps, 32 kColumns)
  const int64_t b = blockIdx.x / p.G, head = blockIdx.x % p.G;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = p.H / p.G;
  const T* k = static_cast<const T*>(p.k) + b * p.k_b + head * p.k_h;
  const T* v = static_cast<const T*>(p.v) + b * p.v_b + head * p.v_h;
  const float decay = p.g ? exp2f(p.g[b * p.G + head] * 1.4426950408889634f) : 1.f;
  const float* first = p.first ? p.first + int64_t(blockIdx.x) * F * columns : nullptr;
  float* last = p.last ? p.last + int64_t(blockIdx.x) * F * columns : nullptr;

  for (int c = threadIdx.x; c < 32 * kColumns; c += kThreads)
    value[c] = c < p.V ? wide<float>(v[c]) : c == p.V ? 1.f : 0.f;
  for (int n = 0; n < group; ++n) {
    const int64_t h = head * group + n;
    const T* q = static_cast<const T*>(p.q) + b * p.q_b + h * p.q_h;
    __syncthreads();
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
    __syncthreads();

    float y[kColumns] = {};
    for (int start = warp; start < F; start += kWarps * kAtOnce) {
      float S[kAtOnce][kColumns];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const int f = start + r * kWarps, column = lane + 32 * c;
          S[r][c] = first && f < F && column < columns
                        ? __ldcs(first + int64_t(f) * columns + column)
                        : 0.f;
        }
      }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const int f = start + r * kWarps;
        if (f >= F) break;
        const float kf = mk[f], qf = mq[f];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const int column = lane + 32 * c;
          const float kept = decay * S[r][c] + kf * value[column];
          y[c] += qf * kept;
          if (last && n == 0 && column < columns)
            __stcs(last + int64_t(f) * columns + column, kept);
        }
      }
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
  const int bytes = int(sizeof(float)) * (2 * p.features + 32 * kColumns * (1 + kWarps));
  if (bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(
        step_kernel<T, kColumns>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes
    );
    if (error != cudaSuccess) return error;
  }
  step_kernel<T, kColumns><<<unsigned(p.B * p.G), kThreads, bytes, stream>>>(p);
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
