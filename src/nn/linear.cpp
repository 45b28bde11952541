#include "nn/linear.h"

#include <ATen/Functions.h>

#include "core/initial.h"
#include "nn/initial_values.h"
#include "nn/onednn_linear.h"
#include "nn/parameter.h"
#include "nn/part.h"

namespace horner {

at::Tensor Linear::operator()(const at::Tensor& x) const {
  const Part part(parts::kProjections);
  if (has_onednn_linear(x, weight)) return onednn_linear(x, weight, bias);
  const bool narrower =
      weight.element_size() < x.element_size();  // a layer held in bf16 computes in it
  return at::linear(narrower ? x.to(weight.scalar_type()) : x, weight, bias);
}

Linear linear(torch::nn::Module& m, const std::string& name, at::Tensor weight, bool bias) {
  Linear l{parameter(m, name + "_weight", [&] { return std::move(weight); }), {}};
  if (bias)
    l.bias = parameter(m, name + "_bias", [&] {
      return constant({l.weight.size(0)}, 0).to(l.weight.options());
    });
  return l;
}

Linear linear(torch::nn::Module& m, const std::string& name, int64_t in, int64_t out, bool bias) {
  const Initial own(name);
  return linear(m, name, normal({out, in}), bias);
}

}  // namespace horner
