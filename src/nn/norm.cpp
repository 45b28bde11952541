#include "nn/norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>

#include <cmath>

#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/parameter.h"
#include "nn/part.h"
#include "nn/precision.h"
#include "nn/rms_norm.h"

namespace horner {

at::Tensor HeadNorm::operator()(const at::Tensor& x) const {
  if (kind == "none") return x;
  const Part part(parts::kNorms);
  if (fuses(x, {})) {
    const at::Tensor y = fused_gated_norm(x, weight, {}, eps, kind == "layer", Gate::none);
    return bias.defined() ? y + bias.to(y.scalar_type()) : y;
  }
  at::Tensor y = wide(x);
  const double V = double(x.size(-1));
  const bool row = !weight.defined() || weight.dim() == 1;
  if (row && y.scalar_type() == at::kFloat && (kind == "rms" || kind == "layer")) {
    const at::Tensor w = weight.defined() ? wide(weight) : weight;
    const at::Tensor b = bias.defined() ? wide(bias) : bias;
    return (kind == "rms" ? rms_norm(y, w, eps) : at::layer_norm(y, {x.size(-1)}, w, b, eps))
        .to(x.scalar_type());
  }
  if (kind == "l2" || kind == "unit_d") {
    y = y / y.norm(2, -1, true).clamp_min(1e-12) * (kind == "l2" ? 1.0 : V);
  } else {
    if (kind == "layer") y = y - y.mean(-1, true);
    y = y * (y.square().mean(-1, true) + eps).rsqrt();
  }
  if (weight.defined()) y = y * weight;
  if (bias.defined()) y = y + bias;
  return y.to(x.scalar_type());
}

at::Tensor HeadNorm::gated(const at::Tensor& o, const at::Tensor& z, Gate act) const {
  const Part part(parts::kNorms);
  const at::Tensor gate = split_heads(z, o.size(2));
  if (fuses(o, gate) && !bias.defined())
    return join_heads(fused_gated_norm(o, weight, gate, eps, kind == "layer", act));
  const at::Tensor a = act == Gate::silu ? at::silu(z) : z.sigmoid();
  return a * join_heads((*this)(o)).to(z.scalar_type());
}

AddNorm HeadNorm::add(const at::Tensor& x, const at::Tensor& y) const {
  const Part part(parts::kNorms);
  const auto device = x.device().type();
  const bool casts =
      !x.is_meta() && at::autocast::is_autocast_enabled(device) && x.scalar_type() == at::kFloat;
  const at::ScalarType type = casts ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
  const bool same = !y.defined() || y.scalar_type() == type;
  if (same && x.scalar_type() == at::kFloat && weight.defined() && kind == "rms" && fuses(x, {}) &&
      (type == at::kBFloat16 || type == at::kFloat))
    return fused_add_norm(x, y, weight, eps, type);
  const at::Tensor sum = y.defined() ? x + y : x;
  return {sum, (*this)(sum).to(type)};
}

// Whether a kernel takes this norm.
bool HeadNorm::fuses(const at::Tensor& x, const at::Tensor& gate) const {
  return (kind == "rms" || kind == "layer") && norm_fusable(x, weight, gate);
}

HeadNorm head_norm(
    torch::nn::Module& m,
    const std::string& name,
    const std::string& kind,
    double eps,
    at::IntArrayRef weight,
    bool bias
) {
  HeadNorm norm{kind, eps, {}, {}};
  const bool affine = !weight.empty() && (kind == "rms" || kind == "layer");
  if (affine) norm.weight = parameter(m, name + "_weight", [&] { return constant(weight, 1); });
  if (bias) norm.bias = parameter(m, name + "_bias", [&] { return constant(weight, 0); });
  return norm;
}

bool scale_free(std::string_view kind) {
  return kind == "l2" || kind == "unit_d" || kind == "rms" || kind == "layer";
}

at::Tensor unit_length(const at::Tensor& x) {
  const Part part(parts::kNorms);
  const at::Tensor y = wide(x);
  if (y.scalar_type() == at::kDouble) return y * (y.square().sum(-1, true) + 1e-6).rsqrt();
  const double n = double(x.size(-1));  // x / sqrt(n (mean x^2 + 1e-6 / n))
  const at::Tensor each = at::full({x.size(-1)}, 1 / std::sqrt(n), y.options());
  if (norm_fusable(x, each, {})) return fused_gated_norm(x, each, {}, 1e-6 / n, false, Gate::none);
  return rms_norm(y, each, 1e-6 / n).to(x.scalar_type());
}

}  // namespace horner
