#include "cuda/device.h"

#include <cuda_runtime.h>

#include <cstdio>

namespace horner::cuda {

int processors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    return 1;
  return count;
}

}  // namespace horner::cuda

// The GPU in words, for the head of a report.
extern "C" const char* horner_describe_gpu(int device) {
  static char text[256];
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return "unknown GPU";
  std::snprintf(
      text,
      sizeof text,
      "%s, %d SMs, sm_%d%d",
      properties.name,
      properties.multiProcessorCount,
      properties.major,
      properties.minor
  );
  return text;
}
