#include "nn/norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "nn/precision.h"
#include "nn/rms_norm.h"

namespace horner {

at::Tensor HeadNorm::operator()(const at::Tensor& x) const {
  if (kind == "none") return x;
  at::Tensor y = wide(x);
  const double V = double(x.size(-1));
  const bool row = !weight.defined() || weight.dim() == 1;
  if (row && y.scalar_type() == at::kFloat && (kind == "rms" || kind == "layer")) {
    const at::Tensor w = weight.defined() ? wide(weight) : weight;
    return (kind == "rms" ? rms_norm(y, w, eps) : at::layer_norm(y, {x.size(-1)}, w, {}, eps))
        .to(x.scalar_type());
  }
  if (kind == "l2" || kind == "unit_d") {
    y = y / y.norm(2, -1, true).clamp_min(1e-12) * (kind == "l2" ? 1.0 : V);
  } else {
    if (kind == "layer") y = y - y.mean(-1, true);
    y = y * (y.square().mean(-1, true) + eps).rsqrt();
  }
  if (weight.defined()) y = y * weight;
  return y.to(x.scalar_type());
}

HeadNorm head_norm(
    torch::nn::Module& m,
    const std::string& name,
    const std::string& kind,
    double eps,
    at::IntArrayRef weight
) {
  HeadNorm norm{kind, eps, {}};
  const bool affine = !weight.empty() && (kind == "rms" || kind == "layer");
  if (affine) norm.weight = m.register_parameter(name + "_weight", at::ones(weight));
  return norm;
}

bool scale_free(std::string_view kind) {
  return kind == "l2" || kind == "unit_d" || kind == "rms" || kind == "layer";
}

at::Tensor unit_length(const at::Tensor& x) {
  const at::Tensor y = wide(x);
  if (y.scalar_type() == at::kDouble) return y * (y.square().sum(-1, true) + 1e-6).rsqrt();
  const double n = double(x.size(-1));  // x / sqrt(n (mean x^2 + 1e-6 / n))
  return rms_norm(y, at::full({x.size(-1)}, 1 / std::sqrt(n), y.options()), 1e-6 / n)
      .to(x.scalar_type());
}

}  // namespace horner
