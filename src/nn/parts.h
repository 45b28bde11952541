// What layers are made of: projections, short convolution, per-head norms, and how their numbers
// begin.
#pragma once

#include <torch/nn/module.h>

#include "nn/pass.h"

namespace horner {

// Initial values, fp32.
at::Tensor normal(at::IntArrayRef sizes, double deviation = 0.02);
at::Tensor uniform(at::IntArrayRef sizes, double low, double high);
at::Tensor xavier(
    int64_t out, int64_t in, double gain
);  // uniform, bound gain sqrt(6 / (in + out))
// b with softplus(b) log-uniform in [low, high]: the step sizes of Mamba.
at::Tensor inverse_softplus_of_steps(int64_t n, double low = 1e-3, double high = 1e-1);

struct Linear {
  at::Tensor weight;  // (out,in)
  at::Tensor bias;    // (out) or undefined
  at::Tensor operator()(const at::Tensor& x) const;
};
// Registers NAME.weight, and NAME.bias = 0 where it is asked for.
Linear linear(torch::nn::Module&, const std::string& name, at::Tensor weight, bool bias = false);
Linear linear(
    torch::nn::Module&, const std::string& name, int64_t in, int64_t out, bool bias = false
);

// Depth-wise causal convolution over time; the state carries the last kernel - 1 inputs.
//   y_tc = act( bias_c + sum_j weight_cj x_{t-kernel+1+j, c} )          x, y (B,T,C)
struct ShortConv {
  at::Tensor weight;  // (C,kernel); undefined: y = x
  at::Tensor bias;    // (C) or undefined
  std::string activation = "none";
  at::Tensor operator()(const at::Tensor& x, Pass& pass) const;
};
struct ShortConvOptions {
  int64_t kernel = 4;
  std::string activation = "silu";
  bool bias = false;
};
// kernel = 0: none. Weights U(-1/sqrt(kernel), 1/sqrt(kernel)), torch's default for a convolution.
ShortConv
short_conv(torch::nn::Module&, const std::string& name, int64_t channels, const ShortConvOptions&);

// Norm over the last dimension of (B,T,H,V), in fp32 at least.
//   l2      x / max(|x|, 1e-12)          unit_d  V x / max(|x|, 1e-12)
//   rms     x / sqrt(mean x^2 + eps)     layer   (x - mean) / sqrt(var + eps)
// and times the weight, where there is one.
struct HeadNorm {
  std::string kind;
  double eps = 1e-5;
  at::Tensor weight;  // (V) or (H,V), or undefined
  at::Tensor operator()(const at::Tensor& x) const;
};
HeadNorm head_norm(
    torch::nn::Module&,
    const std::string& name,
    const std::string& kind,
    double eps,
    at::IntArrayRef weight
);
bool scale_free(std::string_view kind);  // a positive factor before it changes nothing, eps aside

at::Tensor activate(std::string_view kind, const at::Tensor& x);  // none, silu
at::Tensor unit_length(const at::Tensor& x);  // x / sqrt(|x|^2 + 1e-6) over the last dimension
at::Tensor wide(const at::Tensor& x);         // fp32, or fp64 where it is
at::Tensor split_heads(const at::Tensor& x, int64_t H);  // (B,T,H X) -> (B,T,H,X)
at::Tensor join_heads(const at::Tensor& x);              // (B,T,H,X) -> (B,T,H X)

// Width of a head where all H heads together are `expand` times D; refuses what does not divide.
int64_t head_width(
    std::string_view mixer, std::string_view option, int64_t D, int64_t H, double expand
);
void check_heads(std::string_view mixer, int64_t D, int64_t H);  // H divides D
void check_at_least(std::string_view mixer, std::string_view option, double value, double least);

}  // namespace horner
