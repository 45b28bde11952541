// Launches a kernel that needs more than 48 KB of shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

template <class... P>
cudaError_t launch(
    void (*kernel)(P...),
    int64_t blocks,
    int threads,
    size_t bytes,
    cudaStream_t stream,
    const P&... p
) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error != cudaSuccess) return error;
  kernel<<<unsigned(blocks), threads, bytes, stream>>>(p...);
  return cudaGetLastError();
}

#define HORNER_DYNAMIC_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

}  // namespace horner::cuda
