// The tensors of a sweep for the copy engine, and shared memory aligned for wgmma.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/sm90.cuh"
#include "cuda/tensor_map.h"
#include "ops/linear/linear.cuh"

namespace horner::cuda {
namespace {

struct Maps {
  CUtensorMap q, k, v, x;
};

inline cudaError_t encode(CUtensorMap& map, const Rows& x, const Sweep& p, int width) {
  return encode_tiles(map, x.data, {p.B, p.T, p.H / x.group, width, x.b, x.t, x.h});
}

inline cudaError_t encode(Maps& maps, const Sweep& p) {
  cudaError_t error = encode(maps.k, p.k, p, p.R);
  if (error == cudaSuccess) error = encode(maps.v, p.v, p, p.N);
  if (error == cudaSuccess && p.q.data) error = encode(maps.q, p.q, p, p.R);
  return error == cudaSuccess && p.x.data ? encode(maps.x, p.x, p, p.N) : error;
}

constexpr int kAlignment = 1024;  // of tiles: wgmma's swizzle needs it

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
__device__ inline unsigned char* aligned_memory() {
  HORNER_DYNAMIC_MEMORY(dynamic);
  return dynamic + (kAlignment - shared_address(dynamic) % kAlignment) % kAlignment;
}

// Copies contiguous numbers to shared memory; addresses and bytes are multiples of 16.
__device__ inline void load_numbers(uint32_t to, const float* from, uint32_t barrier, int bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from),
      "r"(bytes),
      "r"(barrier)
      : "memory"
  );
}
#endif

}  // namespace
}  // namespace horner::cuda
