// Parameters of the kernels of S6's recurrence (selective_scan.h has the equations).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

struct SelectiveScan {
  int64_t B, T, E;  // N = 16
  bool bf16;        // u and du
  const void* u;    // (B,T,E)
  const float *dt, *A, *Bt, *Ct;
  float *y, *last;  // (B,T,E), (B,E,N)
  float* marks;     // (B, blocks of 64 tokens, E, N)
  const float* dy = nullptr;
  void* du = nullptr;
  float* ddt = nullptr;
  float* dA = nullptr;   // (B,E,N), to be summed over B
  float* dBC = nullptr;  // (B, T, groups of 64 channels, 2 N), to be summed over the groups
};

constexpr int kScanTokens = 64, kScanChannels = 64, kScanStates = 16;

cudaError_t selective_forward(const SelectiveScan&, cudaStream_t);
cudaError_t selective_backward(const SelectiveScan&, cudaStream_t);

}  // namespace horner::cuda
