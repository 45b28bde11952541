#include "nn/linear.h"

#include <ATen/Functions.h>

#include "core/initial.h"
#include "nn/initial_values.h"
#include "nn/onednn_linear.h"

namespace horner {

at::Tensor Linear::operator()(const at::Tensor& x) const {
  if (has_onednn_linear(x, weight)) return onednn_linear(x, weight, bias);
  const bool narrower =
      weight.element_size() < x.element_size();  // a layer held in bf16 computes in it
  return at::linear(narrower ? x.to(weight.scalar_type()) : x, weight, bias);
}

Linear linear(torch::nn::Module& m, const std::string& name, at::Tensor weight, bool bias) {
  Linear l{m.register_parameter(name + "_weight", std::move(weight)), {}};
  if (bias) l.bias = m.register_parameter(name + "_bias", at::zeros({l.weight.size(0)}));
  return l;
}

Linear linear(torch::nn::Module& m, const std::string& name, int64_t in, int64_t out, bool bias) {
  const Initial own(name);
  return linear(m, name, normal({out, in}), bias);
}

}  // namespace horner
