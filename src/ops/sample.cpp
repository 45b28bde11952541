#include "ops/sample.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace horner {

Inputs sample_qkv(const Dims& d, at::TensorOptions options) {
  Inputs in;
  in.q = at::randn({d.B, d.T, d.H, d.K}, options);
  in.k = at::randn({d.B, d.T, d.G, d.K}, options);
  in.v = at::randn({d.B, d.T, d.G, d.V}, options);
  return in;
}

at::Tensor sample_decay(const Dims& d, std::string_view gate, at::TensorOptions options) {
  if (gate == "head") return at::log_sigmoid(at::randn({d.B, d.T, d.G}, options) + 2.0);
  if (gate == "key") return at::log_sigmoid(at::randn({d.B, d.T, d.G, d.K}, options) + 2.0);
  return {};
}

}  // namespace horner
