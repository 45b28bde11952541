// Norms over the last dimension of (B,T,H,V), or (B,T,D), in fp32 at least.
//
//   l2      x / max(|x|, 1e-12)          unit_d  V x / max(|x|, 1e-12)
//   rms     x / sqrt(mean x^2 + eps)     layer   (x - mean) / sqrt(var + eps)
//
// and times the weight, plus the bias, where there are such.
#pragma once

#include <torch/nn/module.h>

#include "nn/fused/fused.h"

namespace horner {

struct HeadNorm {
  std::string kind;
  double eps = 1e-5;
  at::Tensor weight;  // (V) or (H,V), or undefined
  at::Tensor bias;    // likewise, of layer only
  at::Tensor operator()(const at::Tensor& x) const;
  // The norm of o (B,T,H,V) times act(z), z (B,T,H V).   -> (B,T,H V)
  at::Tensor gated(const at::Tensor& o, const at::Tensor& z, Gate act) const;
  // x + y and its norm, in the type that products compute in; y undefined: of x.
  AddNorm add(const at::Tensor& x, const at::Tensor& y) const;

 private:
  bool fuses(const at::Tensor& x, const at::Tensor& gate) const;
};
HeadNorm head_norm(
    torch::nn::Module&,
    const std::string& name,
    const std::string& kind,
    double eps,
    at::IntArrayRef weight,
    bool bias = false
);
bool scale_free(std::string_view kind);  // a positive factor of x changes nothing (except for eps)

at::Tensor unit_length(const at::Tensor& x);  // x / sqrt(|x|^2 + 1e-6) over the last dimension

}  // namespace horner
