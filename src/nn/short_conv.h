// A short causal convolution of each channel on a GPU, in one pass over memory; parts.h has it in plain operations.
//
//   a_t = b + sum_j w_j x_{t-W+1+j}        y_t = a_t, or a_t sigmoid(a_t)        x_t = 0 for t < 0
//   dz_t = dy_t act'(a_t),   dx_t = sum_j w_j dz_{t+W-1-j},   dw_j = sum_t dz_t x_{t-W+1+j},   db = sum_t dz_t
//
// a is computed again in the backward: nothing but x is kept.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

struct ConvWeights {
  at::Tensor weight;  // (C,W)
  at::Tensor bias;    // (C) or undefined
  bool silu = false;
};

bool can_convolve(const at::Tensor& x, const ConvWeights&);
at::Tensor convolve(const at::Tensor& x, const ConvWeights&);  // (B,T,C)

// What libhorner_cuda.so offers. dweights: (parts, W + 1, C) in fp32, to be summed; the last of W + 1 is the bias's.
struct ConvKernels {
  void (*forward)(const at::Tensor& x, const ConvWeights&, at::Tensor& y) = nullptr;
  at::Tensor (*backward
  )(const at::Tensor& x, const ConvWeights&, const at::Tensor& dy, at::Tensor& dx) = nullptr;
};
ConvKernels& conv_kernels();
ConvKernels cuda_conv_kernels();  // in libhorner_cuda.so

}  // namespace horner
