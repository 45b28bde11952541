// `power`, level 3: the kernels over all pairs (parallel.cuh), and their launch.
#include "ops/power/parallel/parallel.cuh"

#include <algorithm>

#include "cuda/tensor_map.h"
#include "ops/power/delta.cuh"

namespace horner::cuda {
namespace {

extern __shared__ unsigned char dynamic[];

template <int kD, Part kPart, int kOrder, bool kDecay>
__global__ void __launch_bounds__(Plan<kD, kPart>::kThreads, 1) pairs_kernel(
    const __grid_constant__ PowerParallel p, const __grid_constant__ ParallelMaps maps
) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // wgmma's swizzle needs tiles at multiples of 1024 bytes.
  all_pairs<kD, kPart, kOrder, kDecay>(
      p, maps, dynamic + (1024 - shared_address(dynamic) % 1024) % 1024
  );
#endif
}

// Delta; 0 if den was below eps, which a negative inverse marks.
__global__ void __launch_bounds__(kDeltaThreads)
    delta_kernel(const __grid_constant__ PowerParallel p) {
  const DeltaToken at(p.H);
  const float sum = delta_of(at, p.o, p.o_rest, p.dO, p.V, p.normalise && at.t < p.T);
  if (!at.first || at.t >= p.padded) return;
  const int64_t index = (at.b * p.H + at.h) * p.padded + at.t;
  const float inverse = p.inverse[index];
  p.delta[index] = inverse < 0.f ? 0.f : sum;
  p.factor[index] = fabsf(inverse);
}

template <int kD, Part kPart, int kOrder, bool kDecay>
cudaError_t launch_pairs(const PowerParallel& p, const ParallelMaps& maps, cudaStream_t stream) {
  using P = Plan<kD, kPart>;
  const auto kernel = pairs_kernel<kD, kPart, kOrder, kDecay>;
  const int bytes = int(sizeof(Memory<kD, kPart>)) + 1024;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const int64_t jobs = p.B * p.H * ((p.padded / 64 + P::kGroups - 1) / P::kGroups);
  kernel<<<unsigned(std::min(jobs, p.processors)), P::kThreads, bytes, stream>>>(p, maps);
  return cudaGetLastError();
}

cudaError_t encode(CUtensorMap& map, const Rows& x, const PowerParallel& p, int width) {
  return encode_tiles(map, x.data, {p.B, p.T, p.H / x.group, width, x.b, x.t, x.h});
}

cudaError_t encode(ParallelMaps& maps, const PowerParallel& p) {
  cudaError_t error = encode(maps.q, p.q, p, p.K);
  if (error == cudaSuccess) error = encode(maps.k, p.k, p, p.K);
  if (error == cudaSuccess) error = encode(maps.v, p.v, p, p.V);
  return error == cudaSuccess && p.dO.data ? encode(maps.dO, p.dO, p, p.V) : error;
}

template <Part kPart, int kOrder>
cudaError_t choose_width(const PowerParallel& p, const ParallelMaps& maps, cudaStream_t stream) {
  if (p.since != nullptr) return launch_pairs<64, kPart, kOrder, true>(p, maps, stream);
  return p.K <= 64 && p.V <= 64 ? launch_pairs<64, kPart, kOrder, false>(p, maps, stream)
                                : launch_pairs<128, kPart, kOrder, false>(p, maps, stream);
}

template <Part kPart>
cudaError_t choose(const PowerParallel& p, const ParallelMaps& maps, cudaStream_t stream) {
  return p.order == 2 ? choose_width<kPart, 2>(p, maps, stream)
                      : choose_width<kPart, 0>(p, maps, stream);
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
  delta_kernel<<<DeltaToken::blocks(p.B, p.padded, p.H), kDeltaThreads, 0, stream>>>(p);
  error = choose<Part::dq>(p, maps, stream);
  return error == cudaSuccess ? choose<Part::dkv>(p, maps, stream) : error;
}

}  // namespace horner::cuda
