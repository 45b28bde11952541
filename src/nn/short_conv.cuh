// Parameters of the kernels of a short convolution (short_conv.h has the equations).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

constexpr int kConvParts = 3;

// Channels first .. first + C of the convolution, in tensors of their own.
struct ConvPart {
  int C = 0, first = 0;
  int unit = 0;     // heads of so many channels get unit length; 0: they do not
  int64_t row = 0;  // strides of x; y, dy and dx are contiguous (B,T,C)
  int token = 0;
  const void *x = nullptr, *dy = nullptr;
  void *y = nullptr, *dx = nullptr;
};

struct Conv {
  int64_t B = 0, T = 0, C = 0;                     // C: of all parts
  int W = 0;                                       // 1 .. 4 weights
  bool bf16 = false, silu = false;                 // x, y, dy, dx: bf16 or fp32
  const float *weight = nullptr, *bias = nullptr;  // (C,W), (C) or null
  int parts = 0;
  ConvPart part[kConvParts];
  float* dweights = nullptr;  // (conv_sums, W + 1, C)
};

int64_t conv_sums(const Conv&);
cudaError_t conv_forward(const Conv&, cudaStream_t);
cudaError_t conv_backward(const Conv&, cudaStream_t);

}  // namespace horner::cuda
