// Norms over the last dimension of (B,T,H,V), or (B,T,D), in fp32 at least.
//
//   l2      x / max(|x|, 1e-12)          unit_d  V x / max(|x|, 1e-12)
//   rms     x / sqrt(mean x^2 + eps)     layer   (x - mean) / sqrt(var + eps)
//
// and times the weight, if there is one.
#pragma once

#include <torch/nn/module.h>

namespace horner {

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
bool scale_free(std::string_view kind);  // a positive factor of x changes nothing (except for eps)

at::Tensor unit_length(const at::Tensor& x);  // x / sqrt(|x|^2 + 1e-6) over the last dimension

}  // namespace horner
