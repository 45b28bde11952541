// Launches of kernels that need more than 48 KB of shared memory, or that overlap with the kernel before them.
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

// overlaps: blocks may start while blocks of the kernel before it end. The kernel must call wait_for_earlier_kernels().
template <class... P>
cudaError_t launch_early(
    void (*kernel)(P...),
    int64_t blocks,
    int threads,
    size_t bytes,
    cudaStream_t stream,
    bool overlaps,
    const P&... p
) {
  cudaLaunchConfig_t config = {};
  config.gridDim = unsigned(blocks);
  config.blockDim = unsigned(threads);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = overlaps ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, p...);
}

// Blocks of the next kernel may start when the blocks of this one end. Nothing may be read before this call.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#define HORNER_DYNAMIC_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

}  // namespace horner::cuda
