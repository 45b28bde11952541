// `power`, level 3: the kernels over all pairs (parallel.cuh), and their launch.
#include "ops/power/parallel.cuh"

#include <algorithm>

#include "cuda/tensor_map.h"

namespace horner::cuda {
namespace {

extern __shared__ unsigned char dynamic[];

template <int kD, Part kPart, int kOrder>
__global__ void __launch_bounds__(Plan<kD, kPart>::kThreads, 1) pairs_kernel(
    const __grid_constant__ PowerParallel p, const __grid_constant__ ParallelMaps maps
) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // wgmma's swizzle wants tiles at multiples of 1024 bytes.
  all_pairs<kD, kPart, kOrder>(p, maps, dynamic + (1024 - shared_address(dynamic) % 1024) % 1024);
#endif
}

// Delta_t = do_t.o_t, 8 lanes a token, 8 columns a lane at a time; 0 where den was held (its inverse is then marked by a
// sign). Blocks (tokens and heads, b): neighbours in memory are neighbours here.
__global__ void __launch_bounds__(256) delta_kernel(const __grid_constant__ PowerParallel p) {
  const unsigned heads = unsigned(p.H), th = blockIdx.x * 32 + threadIdx.x / 8;
  const int64_t t = th / heads, h = th % heads, b = blockIdx.y;
  const bool inside = t < p.padded;
  float sum = 0.f;
  if (t < p.T && p.normalise) {
    const auto eight = [&](const PowerRows& x, int c) {
      return *reinterpret_cast<const uint4*>(
          static_cast<const __nv_bfloat16*>(x.data) + b * x.b + t * x.t + h * x.h + c
      );
    };
    for (int c = 8 * (threadIdx.x % 8); c < p.V; c += 64) {
      const uint4 o = eight(p.o, c), rest = eight(p.o_rest, c), dO = eight(p.dO, c);
      const uint32_t x[4] = {o.x, o.y, o.z, o.w}, y[4] = {rest.x, rest.y, rest.z, rest.w},
                     z[4] = {dO.x, dO.y, dO.z, dO.w};
#pragma unroll
      for (int n = 0; n < 4; ++n)
        sum += (low_half(x[n]) + low_half(y[n])) * low_half(z[n]) +
               (high_half(x[n]) + high_half(y[n])) * high_half(z[n]);
    }
  }
#pragma unroll
  for (int d = 1; d < 8; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 8 != 0 || !inside) return;
  const int64_t index = (b * p.H + h) * p.padded + t;
  const float inverse = p.inverse[index];
  p.delta[index] = inverse < 0.f ? 0.f : sum;
  p.factor[index] = fabsf(inverse);
}

template <int kD, Part kPart, int kOrder>
cudaError_t launch_pairs(const PowerParallel& p, const ParallelMaps& maps, cudaStream_t stream) {
  using P = Plan<kD, kPart>;
  const auto kernel = pairs_kernel<kD, kPart, kOrder>;
  const int bytes = int(sizeof(Memory<kD, kPart>)) + 1024;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const int64_t jobs = p.B * p.H * ((p.padded / 64 + P::kGroups - 1) / P::kGroups);
  kernel<<<unsigned(std::min(jobs, p.processors)), P::kThreads, bytes, stream>>>(p, maps);
  return cudaGetLastError();
}

cudaError_t encode(CUtensorMap& map, const PowerRows& x, const PowerParallel& p, int width) {
  return encode_tiles(map, x.data, {p.B, p.T, p.H / x.group, width, x.b, x.t, x.h});
}

cudaError_t encode(ParallelMaps& maps, const PowerParallel& p) {
  cudaError_t error = encode(maps.q, p.q, p, p.K);
  if (error == cudaSuccess) error = encode(maps.k, p.k, p, p.K);
  if (error == cudaSuccess) error = encode(maps.v, p.v, p, p.V);
  return error == cudaSuccess && p.dO.data ? encode(maps.dO, p.dO, p, p.V) : error;
}

template <Part kPart>
cudaError_t choose(const PowerParallel& p, const ParallelMaps& maps, cudaStream_t stream) {
  if (p.K <= 64 && p.V <= 64) {
    return p.order == 2 ? launch_pairs<64, kPart, 2>(p, maps, stream)
                        : launch_pairs<64, kPart, 0>(p, maps, stream);
  }
  return p.order == 2 ? launch_pairs<128, kPart, 2>(p, maps, stream)
                      : launch_pairs<128, kPart, 0>(p, maps, stream);
}

}  // namespace

cudaError_t power_parallel_forward(const PowerParallel& p, cudaStream_t stream) {
  ParallelMaps maps;
  const cudaError_t error = encode(maps, p);
  return error == cudaSuccess ? choose<Part::forward>(p, maps, stream) : error;
}

cudaError_t power_parallel_backward(const PowerParallel& p, cudaStream_t stream) {
  ParallelMaps maps;
  cudaError_t error = encode(maps, p);
  if (error != cudaSuccess) return error;
  const dim3 tokens(unsigned((p.padded * p.H + 31) / 32), unsigned(p.B));
  delta_kernel<<<tokens, 256, 0, stream>>>(p);
  error = choose<Part::dq>(p, maps, stream);
  return error == cudaSuccess ? choose<Part::dkv>(p, maps, stream) : error;
}

}  // namespace horner::cuda
