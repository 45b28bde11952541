#include "nn/position/position.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <numbers>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/position/rotate.h"
#include "nn/precision.h"

namespace horner {

at::Tensor rotated(const at::Tensor& x, const at::Tensor& angle) {
  const int64_t P = x.size(-1) / 2;
  if (!angle.requires_grad() && can_rotate_pairs(x))
    return rotate_pairs(x, angle.cos().to(at::kFloat), angle.sin().to(at::kFloat));
  const at::Tensor type = wide(x);
  const at::Tensor c = angle.cos().to(type.scalar_type()), s = angle.sin().to(type.scalar_type());
  const at::Tensor a = type.narrow(-1, 0, P), b = type.narrow(-1, P, P);
  return at::cat({a * c - b * s, a * s + b * c}, -1).to(x.scalar_type());
}

at::Tensor rope_temperatures(int64_t P, double base, at::Device device) {
  const at::Tensor j = at::arange(P, at::TensorOptions().dtype(at::kDouble).device(device));
  return (j * (-std::log(base) / double(P))).exp();  // base^{-2j/K}
}

at::Tensor rfa_temperatures(int64_t P, double theta, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kDouble).device(device);
  const at::Tensor r = (at::linspace(0, theta * std::numbers::pi, P, options) / 2).tan();
  return r / r.max();
}

Position::Position(torch::nn::Module& m, int64_t D, int64_t G, int64_t K, const PositionOptions& o)
    : o_(o), G_(G), P_(K / 2) {
  if (o.kind == "none") return;
  HORNER_CHECK(K % 2 == 0, "[{}] {} rotates pairs: K must be even, got {}", m.name(), o.kind, K);
  HORNER_CHECK(
      std::isfinite(o.base) && o.base >= 1,
      "[{}] position.base must be at least 1, got {}",
      m.name(),
      o.base
  );
  HORNER_CHECK(
      o.theta > 0 && o.theta < 1,
      "[{}] position.theta must be in (0,1): tan(pi/2) is infinite; got {}",
      m.name(),
      o.theta
  );
  const int64_t P = K / 2;
  if (o.kind == "rope") return;
  check_heads(m.name(), D, G);
  check_at_least(m.name(), "position.rank", double(o.rank), 0);
  if (o.rank > 0) {
    down_ = linear(m, "angle_down", D, o.rank);
    up_ = linear(m, "angle_up", o.rank, G * P);
  } else {  // Kaiming uniform; its columns are normalised, so only their directions matter
    weight_ = m.register_parameter("angle_weight", uniform({G, D / G, P}, -1, 1));
    length_ = m.register_parameter("angle_length", at::ones({G}));
  }
  if (o.increment == "conv") {
    conv_ = short_conv(m, "angle_conv", G * P, {4, o.activation, false});
    conv_.weight.set_data(normal({G * P, 4}));
  }
  if (o.bias) beta_ = m.register_parameter("angle_beta", at::zeros({G, P}));
  if (o.gate == "head") gate_ = linear(m, "angle_gate", D, G, true);
  if (o.gate == "angle") {
    gate_down_ = linear(m, "angle_gate_down", D, 16);
    gate_ = linear(m, "angle_gate", 16, G * P, true);
  }
}

at::Tensor Position::increments(const at::Tensor& x, Pass& pass) const {
  const at::Tensor xs = wide(split_heads(x, G_));  // (B,T,G,D/G)
  const at::Tensor xh = xs * (xs.square().sum(-1, true) + 1e-6).rsqrt();
  const at::Tensor xc = join_heads(xh);
  at::Tensor phi;
  if (weight_.defined()) {
    const at::Tensor W = weight_ / weight_.norm(2, 1, true) * length_.view({G_, 1, 1});
    phi = at::einsum("btgd,gdp->btgp", {xh, W.to(xh.scalar_type())});  // phi_h = xh_h What_h
  } else {
    phi = split_heads(up_(down_(xc)), G_);
  }
  phi = join_heads(wide(phi));
  if (o_.increment == "conv") {
    phi = conv_(phi, pass);
  } else {
    phi = pass.over_time(phi, [](const at::Tensor& y, at::Tensor& last) {
      if (!last.defined()) last = at::zeros_like(y.sum(1));
      const at::Tensor all = at::cat({last.unsqueeze(1), y}, 1);
      last = all.select(1, y.size(1));
      return y - all.narrow(1, 0, y.size(1));  // phi_t - phi_{t-1}
    });
  }
  phi = split_heads(phi, G_);
  if (beta_.defined()) phi = phi + beta_.exp();
  if (o_.gate == "head") phi = phi * wide(gate_(xc)).sigmoid().unsqueeze(-1);
  if (o_.gate == "angle") phi = phi * split_heads(wide(gate_(gate_down_(xc))).sigmoid(), G_);
  return phi;
}

void Position::rotate(const at::Tensor& x, at::Tensor& q, at::Tensor& k, Pass& pass) const {
  if (o_.kind == "none") return;
  const at::Tensor temperature =
      o_.temperature_max * (o_.kind == "rope" || o_.temperature == "rope"
                                ? rope_temperatures(P_, o_.base, x.device())
                                : rfa_temperatures(P_, o_.theta, x.device()));
  at::Tensor angle;  // (B,T,G|1,P)
  if (o_.kind == "rope") {
    const at::Tensor t = pass.position(x);                                 // (B,T) or (1,T)
    angle = (t.unsqueeze(-1).to(at::kDouble) * temperature).unsqueeze(2);  // th_t = t temp
  } else {
    angle = temperature * pass.running_sum(increments(x, pass).to(at::kDouble));  // th_t = temp c_t
  }
  k = rotated(k, angle);
  const int64_t r = q.size(2) / k.size(2);
  q = rotated(q, angle.size(2) == 1 ? angle : angle.repeat_interleave(r, 2));
}

}  // namespace horner
