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

Dims dims_of(const Inputs& in) {
  const at::Tensor& first = in.q.defined() ? in.q : in.v;
  const int64_t K = in.q.defined() ? in.q.size(3) : in.v.size(3);
  return {
      .B = first.size(0),
      .T = first.size(1),
      .H = first.size(2),
      .G = in.v.size(2),
      .K = K,
      .V = in.v.size(3)};
}

}  // namespace horner
