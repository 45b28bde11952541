// Forward: a thread owns 4 numbers u and reads each weight once for all four. Backward: 256 numbers at once in shared memory.
// First a thread owns a number and walks over the weights for du. Then it owns weights and walks over the numbers for their
// sums, which it keeps in registers until the block ends.
#include "nn/features/scalar_networks.cuh"

#include "cuda/device.h"
#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 256, kEach = 4, kMost = 1024;

__device__ void load_weights(float4* weights, const ScalarNetworks& p) {  // f1, b1, f2, f1 f2
  for (int i = int(threadIdx.x); i < p.R * p.E; i += kThreads)
    weights[i] = {p.f1[i], p.b1[i], p.f2[i], p.f1[i] * p.f2[i]};
}

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ ScalarNetworks p) {
  __shared__ float4 weights[kMost];
  load_weights(weights, p);
  __syncthreads();
  const int64_t first = int64_t(blockIdx.x) * kThreads * kEach + threadIdx.x;
  float u[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    u[i] = first + i * kThreads < p.n ? p.u[first + i * kThreads] : 0.f;
  for (int r = 0; r < p.R; ++r) {
    float y[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) y[i] = p.b2[r];
    for (int e = 0; e < p.E; ++e) {
      const float4 w = weights[r * p.E + e];
#pragma unroll
      for (int i = 0; i < kEach; ++i) y[i] += w.z * fmaxf(u[i] * w.x + w.y, 0.f);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (first + i * kThreads < p.n) p.y[(first + i * kThreads) * p.R + r] = y[i];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __grid_constant__ ScalarNetworks p) {
  __shared__ float4 weights[kMost];
  __shared__ float u[kThreads];
  extern __shared__ float dy[];  // [R][256]
  load_weights(weights, p);
  constexpr int kOwn = kMost / kThreads;
  float with_u[kOwn] = {}, alone[kOwn] = {}, with_z[kOwn] = {};
  for (int64_t first = int64_t(blockIdx.x) * kThreads; first < p.n;
       first += int64_t(gridDim.x) * kThreads) {
    __syncthreads();
    const int64_t mine = first + threadIdx.x;
    u[threadIdx.x] = mine < p.n ? p.u[mine] : 0.f;
    for (int i = int(threadIdx.x); i < kThreads * p.R;
         i += kThreads)  // 0 beyond the end: adds nothing
      dy[i % p.R * kThreads + i / p.R] = first + i / p.R < p.n ? p.dy[first * p.R + i] : 0.f;
    __syncthreads();
    const float own = u[threadIdx.x];
    float du = 0.f;
    for (int r = 0; r < p.R; ++r) {
      float slope = 0.f;
      for (int e = 0; e < p.E; ++e) {
        const float4 w = weights[r * p.E + e];
        slope += own * w.x + w.y > 0.f ? w.w : 0.f;
      }
      du += dy[r * kThreads + threadIdx.x] * slope;
    }
    if (mine < p.n) p.du[mine] = du;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const int weight = k * kThreads + int(threadIdx.x);
      if (weight >= p.R * p.E) continue;
      const float4 w = weights[weight];
      const float* of_r = dy + weight / p.E * kThreads;
#pragma unroll 4
      for (int i = 0; i < kThreads; ++i) {
        const float z = u[i] * w.x + w.y, d = z > 0.f ? of_r[i] : 0.f;
        with_u[k] += d * u[i];
        alone[k] += d;
        with_z[k] += d * z;
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int weight = k * kThreads + int(threadIdx.x), all = p.R * p.E;
    if (weight >= all) continue;
    float* to = p.sums + int64_t(blockIdx.x) * 3 * all + weight;
    to[0] = with_u[k];
    to[all] = alone[k];
    to[2 * all] = with_z[k];
  }
}

}  // namespace

int64_t network_parts(const ScalarNetworks& p) {
  const int64_t tiles = (p.n + kThreads - 1) / kThreads;
  const int64_t most = 4 * processors();  // 4 blocks on each multiprocessor
  return tiles < most ? tiles : most;
}

cudaError_t networks_forward(const ScalarNetworks& p, cudaStream_t stream) {
  const int64_t each = kThreads * kEach;
  forward_kernel<<<unsigned((p.n + each - 1) / each), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t networks_backward(const ScalarNetworks& p, cudaStream_t stream) {
  const size_t bytes = sizeof(float) * size_t(p.R) * kThreads;
  backward_kernel<<<unsigned(network_parts(p)), kThreads, bytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
