#include "nn/parts.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "core/initial.h"
#include "nn/onednn_linear.h"
#include "nn/rms_norm.h"
#include "nn/short_conv.h"

namespace horner {

at::Tensor normal(at::IntArrayRef sizes, double deviation) { return at::randn(sizes) * deviation; }

at::Tensor uniform(at::IntArrayRef sizes, double low, double high) {
  return at::rand(sizes) * (high - low) + low;
}

at::Tensor xavier(int64_t out, int64_t in, double gain) {
  const double bound = gain * std::sqrt(6.0 / double(in + out));
  return uniform({out, in}, -bound, bound);
}

at::Tensor inverse_softplus_of_steps(int64_t n, double low, double high) {
  const at::Tensor step = uniform({n}, std::log(low), std::log(high)).exp();
  return step + (-(-step).expm1()).log();  // log(e^step - 1)
}

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

at::Tensor ShortConv::operator()(const at::Tensor& x, Pass& pass) const {
  if (!weight.defined()) return x;
  return pass.over_time(x, [&](const at::Tensor& u, at::Tensor& tail) {
    const int64_t T = u.size(1), W = weight.size(1);
    const ConvWeights weights{weight, bias, activation == "silu"};
    if (!tail.defined() && T >= W && can_convolve(u, weights)) {
      tail = u.narrow(1, T - W + 1, W - 1);
      return convolve(u, weights);
    }
    if (!tail.defined()) tail = at::zeros({u.size(0), W - 1, u.size(2)}, u.options());
    const at::Tensor all = at::cat({tail.to(u.scalar_type()), u}, 1);
    tail = all.narrow(1, T, W - 1);
    at::Tensor sum = all.narrow(1, 0, T) * weight.select(1, 0);
    for (int64_t j = 1; j < W; ++j) sum = sum + all.narrow(1, j, T) * weight.select(1, j);
    if (bias.defined()) sum = sum + bias;
    return activate(activation, sum).to(u.scalar_type());
  });
}

ShortConv short_conv(
    torch::nn::Module& m, const std::string& name, int64_t channels, const ShortConvOptions& o
) {
  ShortConv conv;
  if (o.kernel == 0) return conv;
  const Initial own(name);
  const double bound = 1 / std::sqrt(double(o.kernel));
  conv.activation = o.activation;
  conv.weight =
      m.register_parameter(name + "_weight", uniform({channels, o.kernel}, -bound, bound));
  if (o.bias) conv.bias = m.register_parameter(name + "_bias", uniform({channels}, -bound, bound));
  return conv;
}

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

at::Tensor activate(std::string_view kind, const at::Tensor& x) {
  return kind == "silu" ? at::silu(x) : x;
}

at::Tensor unit_length(const at::Tensor& x) {
  const at::Tensor y = wide(x);
  if (y.scalar_type() == at::kDouble) return y * (y.square().sum(-1, true) + 1e-6).rsqrt();
  const double n = double(x.size(-1));  // x / sqrt(n (mean x^2 + 1e-6 / n))
  return rms_norm(y, at::full({x.size(-1)}, 1 / std::sqrt(n), y.options()), 1e-6 / n)
      .to(x.scalar_type());
}

at::Tensor wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

at::Tensor split_heads(const at::Tensor& x, int64_t H) { return x.unflatten(-1, {H, -1}); }
at::Tensor join_heads(const at::Tensor& x) { return x.flatten(2); }

int64_t head_width(
    std::string_view mixer, std::string_view option, int64_t D, int64_t H, double expand
) {
  check_at_least(mixer, "heads", double(H), 1);
  check_at_least(mixer, option, expand, 0);
  const int64_t all = int64_t(std::llround(expand * double(D)));
  HORNER_CHECK(
      all >= H && all % H == 0 && std::abs(double(all) - expand * double(D)) < 1e-6,
      "[{}] {} times D = {} must be a multiple of heads = {}, got {}",
      mixer,
      option,
      D,
      H,
      expand * double(D)
  );
  return all / H;
}

void check_heads(std::string_view mixer, int64_t D, int64_t H) {
  HORNER_CHECK(H >= 1 && D % H == 0, "[{}] heads must divide D = {}, got {}", mixer, D, H);
}

void check_at_least(std::string_view mixer, std::string_view option, double value, double least) {
  HORNER_CHECK(
      std::isfinite(value) && value >= least,
      "[{}] {} must be at least {}, got {}",
      mixer,
      option,
      least,
      value
  );
}

}  // namespace horner
