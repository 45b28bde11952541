#include "nn/position/position.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <map>
#include <mutex>
#include <numbers>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/parameter.h"
#include "nn/position/rotate.h"
#include "nn/precision.h"

namespace horner {
namespace {

struct Rotation {
  at::Tensor c, s;  // (B|1,T,A,P), fp32
};
Rotation rotation_of(const at::Tensor& angle) {
  return {angle.cos().to(at::kFloat), angle.sin().to(at::kFloat)};
}
at::Tensor rope_angles(const at::Tensor& t, const at::Tensor& temperature) {
  return (t.unsqueeze(-1).to(at::kDouble) * temperature).unsqueeze(2);  // th_t = t temp
}

std::vector<double> settings_of(const PositionOptions& o) {
  return {
      o.base,
      o.temperature_max,
      o.scaling == "none"     ? 0.
      : o.scaling == "linear" ? 1.
                              : 2.,
      o.scaling_factor,
      o.scaling_low,
      o.scaling_high,
      double(o.scaling_length)};
}

// Rope's rotations of positions 0 .. T-1, computed once. A CUDA graph may read a table for ever, so none is ever freed;
// lengths are powers of 2, so all together have at most twice the rows of the longest. A stream has its own tables: one that
// another stream is still computing cannot be read. What a graph records is not computed yet, so it is not kept.
Rotation rope_table(int64_t T, int64_t P, const PositionOptions& o, at::Device device) {
  struct Table {
    int64_t rows = 0;
    Rotation rotation;
  };
  using Key = std::tuple<int, int64_t, int64_t, int64_t, std::vector<double>>;
  static std::mutex mutex;
  static auto& tables = *new std::map<Key, std::vector<Table>>();  // outlives CUDA
  const int64_t stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).id();
  const std::lock_guard<std::mutex> lock(mutex);
  auto& own = tables[{int(device.type()), device.index(), stream, P, settings_of(o)}];
  if (own.empty() || own.back().rows < T) {
    const bool captured =
        device.is_cuda() && rotate_kernels().captured && rotate_kernels().captured();
    int64_t rows = captured ? T : 64;
    while (rows < T) rows *= 2;
    const at::Tensor t = at::arange(rows, device).unsqueeze(0);
    const Rotation made = rotation_of(rope_angles(t, rope_spectrum(P, o, device)));
    if (captured) return made;
    own.push_back({rows, made});
  }
  const Rotation& all = own.back().rotation;
  return {all.c.narrow(1, 0, T), all.s.narrow(1, 0, T)};
}

void check_scaling(const std::string& mixer, const PositionOptions& o) {
  if (o.scaling == "none") return;
  HORNER_CHECK(o.kind == "rope", "[{}] position.scaling is for rope, not for {}", mixer, o.kind);
  HORNER_CHECK(
      std::isfinite(o.scaling_factor) && o.scaling_factor >= 1,
      "[{}] position.scaling_factor must be at least 1, got {}",
      mixer,
      o.scaling_factor
  );
  HORNER_CHECK(
      o.scaling != "llama3" || (o.scaling_length >= 1 && 0 < o.scaling_low &&
                                o.scaling_low < o.scaling_high && std::isfinite(o.scaling_high)),
      "[{}] position: 0 < scaling_low < scaling_high and scaling_length >= 1, got {}, {}, {}",
      mixer,
      o.scaling_low,
      o.scaling_high,
      o.scaling_length
  );
}

}  // namespace

at::Tensor rotated(const at::Tensor& x, const at::Tensor& angle) {
  const int64_t P = x.size(-1) / 2;
  if (!angle.requires_grad() && can_rotate_pairs(x)) {
    const auto [c, s] = rotation_of(angle);
    return rotate_pairs({x}, c, s)[0];
  }
  const at::Tensor type = wide(x);
  const at::Tensor c = angle.cos().to(type.scalar_type()), s = angle.sin().to(type.scalar_type());
  const at::Tensor a = type.narrow(-1, 0, P), b = type.narrow(-1, P, P);
  return at::cat({a * c - b * s, a * s + b * c}, -1).to(x.scalar_type());
}

at::Tensor rope_temperatures(int64_t P, double base, at::Device device) {
  const at::Tensor j = at::arange(P, at::TensorOptions().dtype(at::kDouble).device(device));
  return (j * (-std::log(base) / double(P))).exp();  // base^{-2j/K}
}

at::Tensor rope_spectrum(int64_t P, const PositionOptions& o, at::Device device) {
  const at::Tensor plain = o.temperature_max * rope_temperatures(P, o.base, device);
  if (o.scaling == "none") return plain;
  if (o.scaling == "linear") return plain / o.scaling_factor;
  const at::Tensor turns = plain * (double(o.scaling_length) / (2 * std::numbers::pi));
  const at::Tensor kept =  // 0: divided by the factor, 1: as it is
      ((turns - o.scaling_low) / (o.scaling_high - o.scaling_low)).clamp(0, 1);
  return plain * (kept + (1 - kept) / o.scaling_factor);
}

at::Tensor rfa_temperatures(int64_t P, double theta, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kDouble).device(device);
  const at::Tensor r = (at::linspace(0, theta * std::numbers::pi, P, options) / 2).tan();
  return r / r.max();
}

Position::Position(torch::nn::Module& m, int64_t D, int64_t G, int64_t K, const PositionOptions& o)
    : o_(o), G_(G), P_(K / 2) {
  check_scaling(m.name(), o);
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
  HORNER_CHECK(
      std::isfinite(o.temperature_max) && o.temperature_max >= 0,
      "[{}] position.temperature_max must be at least 0, got {}",
      m.name(),
      o.temperature_max
  );
  const int64_t P = K / 2;
  if (o.kind == "rope") return;
  check_heads(m.name(), D, G);
  check_at_least(m.name(), "position.rank", double(o.rank), 0);
  if (o.rank > 0) {
    down_ = linear(m, "angle_down", D, o.rank);
    up_ = linear(m, "angle_up", o.rank, G * P);
  } else {
    // Kaiming uniform of fan-in P, as the authors'. The columns are normalised, so the size does not change the angles, but it
    // decides how far a step of Adam turns them.
    const double bound = std::sqrt(6 / double(P));
    weight_ = parameter(m, "angle_weight", [&] { return uniform({G, D / G, P}, -bound, bound); });
    length_ = parameter(m, "angle_length", [&] { return at::ones({G}); });
  }
  if (o.increment == "conv") {
    conv_ = short_conv(m, "angle_conv", G * P, {4, o.activation, false});
    start_at(conv_.weight, [&] { return normal({G * P, 4}); });
  }
  if (o.bias) beta_ = parameter(m, "angle_beta", [&] { return at::zeros({G, P}); });
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
  if (beta_.defined()) phi = phi + bounded_exp(beta_);
  if (o_.gate == "head") phi = phi * wide(gate_(xc)).sigmoid().unsqueeze(-1);
  if (o_.gate == "angle") phi = phi * split_heads(wide(gate_(gate_down_(xc))).sigmoid(), G_);
  return phi;
}

void Position::rotate(const at::Tensor& x, at::Tensor& q, at::Tensor& k, Pass& pass) const {
  if (o_.kind == "none") return;
  const bool direct = can_rotate_pairs(q) && can_rotate_pairs(k);
  const auto turn = [&](const Rotation& by) {
    const std::vector<at::Tensor> both = rotate_pairs({q, k}, by.c, by.s);
    q = both[0], k = both[1];
  };
  if (o_.kind == "rope" && direct && pass.fresh() && pass.starts().empty()) {
    if (pass.context().keep_state) pass.position(x);
    return turn(rope_table(x.size(1), P_, o_, x.device()));
  }
  if (o_.kind == "rope" && direct && pass.context().rotations && pass.starts().empty()) {
    Rotations& all = *pass.context().rotations;
    std::vector<double> key = settings_of(o_);
    key.push_back(double(P_));
    const auto [found, missing] = all.made.try_emplace(std::move(key));
    auto& [c, s] = found->second;
    if (missing) {
      const at::Tensor t = pass.position(x);
      const Rotation made = rotation_of(rope_angles(t, rope_spectrum(P_, o_, x.device())));
      c = made.c, s = made.s, all.seen = pass.last_part();
    } else {
      pass.skip_position(all.seen);
    }
    return turn({c, s});
  }
  const at::Tensor temperature =
      o_.kind == "rope" || o_.temperature == "rope"
          ? rope_spectrum(P_, o_, x.device())
          : o_.temperature_max * rfa_temperatures(P_, o_.theta, x.device());
  at::Tensor angle;  // (B,T,G|1,P)
  if (o_.kind == "rope") {
    angle = rope_angles(pass.position(x), temperature);
  } else {
    angle = temperature * pass.running_sum(increments(x, pass).to(at::kDouble));  // temp c_t
  }
  if (direct && !angle.requires_grad()) return turn(rotation_of(angle));
  k = rotated(k, angle);
  const int64_t r = q.size(2) / k.size(2);
  q = rotated(q, angle.size(2) == 1 ? angle : angle.repeat_interleave(r, 2));
}

}  // namespace horner
