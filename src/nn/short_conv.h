// A short causal convolution of each channel over time: the layer, and its kernel on a GPU.
//
//   a_t = b + sum_j w_j x_{t-W+1+j}        y_t = a_t, or a_t sigmoid(a_t)        x, y (B,T,C)
//
// The state is the last W - 1 inputs, 0 before the first token. On a GPU and without an initial state a kernel computes
// it in one pass over memory. Its backward keeps only x and computes a again:
//
//   dz_t = dy_t act'(a_t)     dx_t = sum_j w_j dz_{t+W-1-j}     dw_j = sum_t dz_t x_{t-W+1+j}
//                                                               db = sum_t dz_t
#pragma once

#include <torch/nn/module.h>

#include "nn/pass.h"

namespace horner {

struct ShortConv {
  at::Tensor weight;  // (C,W); undefined: y = x
  at::Tensor bias;    // (C) or undefined
  std::string activation = "none";
  at::Tensor operator()(const at::Tensor& x, Pass& pass) const;
};
struct ShortConvOptions {
  int64_t kernel = 4;  // W; 0: none
  std::string activation = "silu";
  bool bias = false;
};
// Weights start U(-1/sqrt(W), 1/sqrt(W)), torch's default for a convolution.
ShortConv
short_conv(torch::nn::Module&, const std::string& name, int64_t channels, const ShortConvOptions&);

struct ConvWeights {
  at::Tensor weight;  // (C,W)
  at::Tensor bias;    // (C) or undefined
  bool silu = false;
};

bool can_convolve(const at::Tensor& x, const ConvWeights&);
at::Tensor convolve(const at::Tensor& x, const ConvWeights&);  // (B,T,C)

// What libhorner_cuda.so provides. dweights: (parts, W + 1, C) in fp32, to be summed; the last of W + 1 is the bias.
struct ConvKernels {
  void (*forward)(const at::Tensor& x, const ConvWeights&, at::Tensor& y) = nullptr;
  at::Tensor (*backward
  )(const at::Tensor& x, const ConvWeights&, const at::Tensor& dy, at::Tensor& dx) = nullptr;
};
ConvKernels& conv_kernels();
ConvKernels cuda_conv_kernels();  // in libhorner_cuda.so

}  // namespace horner
