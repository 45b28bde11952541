// A short causal convolution of each channel over time: the layer, and its kernel on a GPU.
//
//   a_t = b + sum_j w_j x_{t-W+1+j}        y_t = a_t, or a_t sigmoid(a_t)        x, y (B,T,C)
//
// The state is the last W - 1 inputs, 0 before the first token. On a GPU and without an initial state a kernel computes
// it in one pass over memory. Its backward keeps only x and computes a again:
//
//   dz_t = dy_t act'(a_t)     dx_t = sum_j w_j dz_{t+W-1-j}     dw_j = sum_t dz_t x_{t-W+1+j}
//                                                               db = sum_t dz_t
//
// q, k and v are convolved together, each from its own tensor into its own. In the same pass the heads of q and k may get
// unit length, o = y r with r = 1 / sqrt(|y|^2 + 1e-6):   dy = r do - y r^3 (y . do).
#pragma once

#include <torch/nn/module.h>

#include "nn/pass.h"

namespace horner {

// Some of the channels, in a tensor of their own (B,T,C'), rows of any stride. unit > 0: heads of so many channels get
// unit length afterwards.
struct ConvPart {
  at::Tensor x;
  int64_t unit = 0;
};

struct ShortConv {
  at::Tensor weight;  // (C,W); undefined: y = x
  at::Tensor bias;    // (C) or undefined
  std::string activation = "none";
  at::Tensor operator()(const at::Tensor& x, Pass& pass) const;
  // Of parts side by side, which are never joined in memory where the kernel runs.
  std::vector<at::Tensor> operator()(const std::vector<ConvPart>& parts, Pass& pass) const;
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
bool can_convolve(const std::vector<ConvPart>&, const ConvWeights&);
std::vector<at::Tensor> convolve(const std::vector<ConvPart>&, const ConvWeights&);
// In plain operations, from a state: y and the state after x. tail (B,W-1,C), or undefined before the first token.
std::vector<at::Tensor>
convolve_after(const at::Tensor& tail, const at::Tensor& x, const ConvWeights&);

// What libhorner_cuda.so provides. dweights: (n, W + 1, C) in fp32, to be summed; the last of W + 1 is the bias.
struct ConvGrads {
  std::vector<at::Tensor> dx;
  at::Tensor dweights;
};
struct ConvKernels {
  std::vector<at::Tensor> (*forward)(const std::vector<ConvPart>&, const ConvWeights&) = nullptr;
  ConvGrads (*backward
  )(const std::vector<ConvPart>&, const ConvWeights&, const std::vector<at::Tensor>& dy) = nullptr;
};
ConvKernels& conv_kernels();
ConvKernels cuda_conv_kernels();   // in libhorner_cuda.so
ConvKernels plain_conv_kernels();  // the same in plain operations, to test the backward's formulas

}  // namespace horner
