// `power`, one token: S' = a S + m(k)^T v~, o = (W m(q)) S' (/ den). The time is that of reading and writing the state.
#include <cuda_runtime.h>

#include "cuda/decay.cuh"
#include "cuda/flat.cuh"
#include "cuda/types.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kMostKeys = 64;

// A block owns one key/value head and the query heads that read it. A thread owns units of the state, kAtOnce at a time, in
// registers. Shared memory: pairs (m(k), W m(q)), k, q, and each thread's share of the sums.
template <class T, int kThreads, int kAtOnce, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    step_kernel(const __grid_constant__ PowerStep p, const __grid_constant__ Flat flat) {
  extern __shared__ __align__(16) float2 features[];  // (F)
  __shared__ float sums[4 * kThreads], ends[6], keys[kMostKeys], queries[kMostKeys];
#if __CUDA_ARCH__ >= 900
  // Blocks of the next kernel may start when these end. Nothing is read before all earlier kernels have ended.
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const int t = int(threadIdx.x), group = p.H / p.G;
  const int b = int(blockIdx.x) / p.G, head = int(blockIdx.x) % p.G;
  const int64_t offset = int64_t(blockIdx.x) * flat.count;
  const int lead = min(int(-offset & 3), flat.count), units = (flat.count - lead) / 4;
  const int own = t < flat.stride ? t : units;  // its first unit
  float4 S[kAtOnce];
  const auto load = [&](int unit) {
    const float* from = p.first + offset + lead + 4 * unit;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j, from += 4 * flat.stride) {
      const bool in = p.first && unit + j * flat.stride < units;
      S[j] = in ? *reinterpret_cast<const float4*>(from) : float4{0.f, 0.f, 0.f, 0.f};
    }
  };
  load(own);  // arrives while the features are computed
  const auto value = [&](int column) {
    const T* v = static_cast<const T*>(p.v) + b * p.v_b + head * p.v_h;
    return column < p.V ? wide<float>(v[column]) : 1.f;
  };
  const float decay = p.g ? exp2f(p.g[blockIdx.x] * kLog2e) : 1.f;
  const auto step = [&](float s, float2 feature, float v, float& sum) {
    s = decay * s + feature.x * v;  // S' = a S + m(k)^T v~
    sum += feature.y * s;           // o = (W m(q)) S'
    return s;
  };
  int row[4];
  float v_own[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    row[i] = (lead + 4 * t + i) / flat.C;
    v_own[i] = value(lead + 4 * t + i - row[i] * flat.C);
  }
  for (int n = 0; n < group; ++n) {
    if (t < p.K) {
      const int64_t h = head * group + n;
      keys[t] = wide<float>(static_cast<const T*>(p.k)[b * p.k_b + head * p.k_h + t]);
      queries[t] = wide<float>(static_cast<const T*>(p.q)[b * p.q_b + h * p.q_h + t]);
    }
    __syncthreads();
    // Feature f: 1, then x_i, then x_i x_j with i <= j.
    if (t == 0) features[0] = {1.f, p.c0};
    if (p.order > 0 && t < p.K) features[1 + t] = {keys[t], p.c1 * queries[t]};
    for (int e = t; p.order > 1 && e < p.K * p.K; e += kThreads) {
      const int i = e / p.K, j = e % p.K;
      if (i > j) continue;
      const float weight = i == j ? p.c2 : 2.f * p.c2;
      features[1 + p.K + i * p.K - i * (i - 1) / 2 + j - i] = {
          keys[i] * keys[j], weight * queries[i] * queries[j]};
    }
    __syncthreads();
    float y[4] = {};
    const float2* feature = features;
    for (int unit = own; unit < units; unit += kAtOnce * flat.stride) {
      if (unit != own || (n > 0 && own + kAtOnce * flat.stride < units)) load(unit);
      float* to = p.last + offset + lead + 4 * unit;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j, to += 4 * flat.stride, feature += flat.rows) {
        if (unit + j * flat.stride >= units) break;
        const float4 next = {
            step(S[j].x, feature[row[0]], v_own[0], y[0]),
            step(S[j].y, feature[row[1]], v_own[1], y[1]),
            step(S[j].z, feature[row[2]], v_own[2], y[2]),
            step(S[j].w, feature[row[3]], v_own[3], y[3])};
        if (p.last && n == 0) *reinterpret_cast<float4*>(to) = next;
      }
    }
    const auto loose = [&](int i) { return i < lead ? i : i + 4 * units; };
    if (t < flat.count - 4 * units) {
      const int e = loose(t), r = e / flat.C;
      float sum = 0.f;
      const float s = p.first ? p.first[offset + e] : 0.f;
      const float next = step(s, features[r], value(e - r * flat.C), sum);
      if (p.last && n == 0) p.last[offset + e] = next;
      ends[t] = sum;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // column c is the sum of shares c, c + C, ..
      const int share = lead + 4 * t + i, all = 4 * flat.stride;
      if (t < flat.stride) sums[share < all ? share : share - all] = y[i];
    }
    __syncthreads();
    for (int c = t; c < flat.C; c += kThreads) {
      float sum = 0.f;
      for (int r = 0; r < flat.rows; ++r) sum += sums[r * flat.C + c];
      for (int i = 0; i < flat.count - 4 * units; ++i)
        sum += loose(i) % flat.C == c ? ends[i] : 0.f;
      sums[c] = sum;  // only this thread reads the shares of column c
    }
    __syncthreads();
    float den = p.normalise ? sums[p.V] : 1.f;
    if (p.clamps) den = fmaxf(den, p.eps);
    T* o = static_cast<T*>(p.o) + (int64_t(blockIdx.x) * group + n) * p.V;
    for (int c = t; c < p.V; c += kThreads) o[c] = narrow<T>(sums[c] / den);
  }
}

template <class T, int kThreads, int kAtOnce, int kBlocks>
cudaError_t run(const PowerStep& p, cudaStream_t stream) {
  const auto kernel = step_kernel<T, kThreads, kAtOnce, kBlocks>;
  cudaLaunchConfig_t config = {};
  config.gridDim = unsigned(p.B * p.G);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = sizeof(float2) * size_t(p.features);
  config.stream = stream;
  cudaLaunchAttribute early;  // blocks may start while blocks of the previous kernel end
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = p.overlaps ? 1 : 0;
  const Flat flat(p.features, p.V + (p.normalise ? 1 : 0), kThreads);
  return cudaLaunchKernelEx(&config, kernel, p, flat);
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
