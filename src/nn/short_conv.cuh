// Parameters of the kernels of a short convolution (short_conv.h has the equations).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

struct Conv {
  int64_t B, T, C;
  int W;                       // 1 .. 4 weights
  bool bf16, silu;             // x, y, dy, dx: bf16 or fp32
  const float *weight, *bias;  // (C,W), (C)
  const void* x;               // (B,T,C)
  void* y;
  const void* dy = nullptr;
  void* dx = nullptr;
  float* dweights = nullptr;  // (conv_parts, W + 1, C)
};

int64_t conv_parts(const Conv&);
cudaError_t conv_forward(const Conv&, cudaStream_t);
cudaError_t conv_backward(const Conv&, cudaStream_t);

}  // namespace horner::cuda
