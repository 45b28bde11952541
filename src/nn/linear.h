// A projection y = x W^T + b, (..,in) -> (..,out).
#pragma once

#include <torch/nn/module.h>

namespace horner {

struct Linear {
  at::Tensor weight;  // (out,in)
  at::Tensor bias;    // (out) or undefined
  at::Tensor operator()(const at::Tensor& x) const;
};
// Registers NAME_weight, and NAME_bias = 0 where it is asked for.
Linear linear(torch::nn::Module&, const std::string& name, at::Tensor weight, bool bias = false);
Linear linear(
    torch::nn::Module&, const std::string& name, int64_t in, int64_t out, bool bias = false
);

}  // namespace horner
