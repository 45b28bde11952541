// Parameters of the kernels of S6's recurrence (selective_scan.h has the equations).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

constexpr int kScanTokens = 32, kScanChannels = 128, kScanStates = 16;
constexpr int kScanSkips = 8;  // parts of dD for each row of the batch

struct SelectiveScan {
  int64_t B, T, E;  // N = 16; E is a multiple of 4
  bool bf16;        // u, step, z, o and their gradients
  const void* u;    // (B,T,E)
  const float *dt, *A, *Bt, *Ct;
  float *y, *last;  // (B,T,E), (B,E,N)
  float* marks;     // (B, blocks of kScanTokens tokens, E, N)
  // With a gate: step with dt = softplus(step) takes the place of dt, o = (y + D u) silu(z) that of y, and so do gradients.
  const void* step = nullptr;  // (B,T,E)
  const void* z = nullptr;     // (B,T,E), rows z_row apart
  int64_t z_row = 0;
  const float* D = nullptr;   // (E)
  void* o = nullptr;          // (B,T,E)
  const void* d_o = nullptr;  // (B,T,E)
  const float* dy = nullptr;
  void *du = nullptr, *dz = nullptr, *dstep = nullptr;
  float* ddt = nullptr;
  float* dA = nullptr;  // (B,E,N), to be summed over B
  float* dBC =
      nullptr;  // (B, T, groups of kScanChannels channels, 2 N), to be summed over the groups
  float* dD = nullptr;  // (B, kScanSkips, E), to be summed over both
};

cudaError_t selective_forward(const SelectiveScan&, cudaStream_t);
cudaError_t selective_backward(const SelectiveScan&, cudaStream_t);

}  // namespace horner::cuda
