#include "mixers/hybrid.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/linears.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {
namespace {

constexpr double kNothing = -1e30;  // log of a sum without terms, finite for the gradients' sake

at::Tensor by_rows(const at::Tensor& x) {  // (B,T,H) -> (B,H,T,1), factors of a map's rows
  return x.transpose(1, 2).unsqueeze(-1);
}

}  // namespace

Hybrid::Hybrid(int64_t D, const Options& o)
    : Mixer("hybrid", D),
      o_(o),
      G_(o.groups > 0 ? o.groups : o.heads),
      K_(o.key > 0 ? o.key : D / std::max<int64_t>(o.heads, 1)),
      V_(o.value > 0 ? o.value : D / std::max<int64_t>(o.heads, 1)) {
  check_at_least(name(), "heads", double(o.heads), 1);
  check_at_least(name(), "key", double(o.key), 0);
  check_at_least(name(), "value", double(o.value), 0);
  if (o.key == 0 || o.value == 0) check_heads(name(), D, o.heads);
  check_at_least(name(), "window", double(o.window), 1);
  check_at_least(name(), "sinks", double(o.sinks), 0);
  check_at_least(name(), "qk_norm_eps", o.qk_norm_eps, 0);
  HORNER_CHECK(!o.bias || !o.qkv_bias, "[hybrid] bias and qkv_bias exclude each other");
  HORNER_CHECK(
      o.groups >= 0 && o.heads % G_ == 0,
      "[hybrid] groups must divide heads = {}, got {}",
      o.heads,
      o.groups
  );
  HORNER_CHECK(
      o.rotate || !reads_left(),
      "[hybrid] far = {} reads the keys that leave the window, which are rotated",
      o.far
  );
  const bool qkv_bias = o.bias || o.qkv_bias;
  q_ = linear(*this, "q", D, o.heads * K_, qkv_bias);
  k_ = linear(*this, "k", D, G_ * K_, qkv_bias);
  v_ = linear(*this, "v", D, G_ * V_, qkv_bias);
  out_ = linear(*this, "out", o.heads * V_, D, o.bias);
  q_norm_ = head_norm(*this, "q_norm", o.qk_norm ? "rms" : "none", o.qk_norm_eps, {K_});
  k_norm_ = head_norm(*this, "k_norm", o.qk_norm ? "rms" : "none", o.qk_norm_eps, {K_});
  position_ = Position(*this, D, G_, K_, o.position);
  make_far(D);
}

bool Hybrid::reads_left() const {
  return o_.far == "linear" || o_.far == "taylor" || o_.far == "centres";
}

void Hybrid::make_far(int64_t D) {
  if (o_.far == "none") return;
  if (!reads_left()) return make_recurrence(D);
  const bool luna = o_.feature == "luna";
  HORNER_CHECK(
      o_.map.nonnegative, "[hybrid] map.nonnegative = false: the sum of the weights can vanish"
  );
  HORNER_CHECK(
      order() >= 0 && order() % 2 == 0,
      "[hybrid] order must be even: an odd polynomial has a zero; got {}",
      order()
  );
  if (o_.far == "linear" && luna) map_ = LunaMap(*this, K_, o_.map);
  if (o_.far == "linear" && !luna) features_ = Features(*this, o_.feature, o_.heads, G_, K_, 0);
  const double of_keys = 0.02 * std::sqrt(double(D));
  if (o_.far == "centres") centres_ = CentreFeatures(*this, G_, K_, o_.count, order(), of_keys);
  if (o_.far == "taylor")
    centre_ = parameter(*this, "centre", [&] { return constant({G_, K_}, 0); });
  far_bias_ = parameter(*this, "far_bias", [&] { return constant({o_.heads}, 0); });
}

void Hybrid::make_recurrence(int64_t D) {
  check_at_least(name(), "rank", double(o_.rank), 1);
  const int64_t rates = decays_per_key() ? K_ : 1;  // of a key head
  if (decays_per_key()) decay_down_ = linear(*this, "decay_down", D, o_.rank);
  decay_ = linear(*this, "decay", decays_per_key() ? o_.rank : D, G_ * rates, true);
  start_at(decay_.bias, [&] {  // half-lives from the window to 64 windows
    const at::Tensor log2 = at::linspace(0, 6, G_) + std::log2(double(o_.window));
    return (std::log(2.0) * (-std::log(2.0) * log2).exp()).expm1().log().repeat_interleave(rates);
  });
  if (o_.far == "gated_deltanet" || o_.far == "kda") beta_ = linear(*this, "beta", D, G_, true);
  if (o_.far == "mlstm") input_gate_ = linear(*this, "input_gate", D, G_, true);
  mass_ = linear(*this, "mass", D, o_.heads, true);
  far_scale_ = parameter(*this, "far_scale", [&] { return constant({o_.heads}, 1); });
  far_mean_ = parameter(*this, "far_mean", [&] { return constant({o_.heads, V_}, 0); });
}

std::vector<std::string> Hybrid::voids() const {
  const Options plain;
  std::vector<std::string> list;
  const auto belongs = [&](const char* setting, bool changed, bool read) {
    if (changed && !read) list.push_back(fmt::format("{}: far = {} reads none", setting, o_.far));
  };
  const bool linear = o_.far == "linear";
  belongs("feature", o_.feature != plain.feature, linear);
  belongs("map", to_json(o_.map) != to_json(plain.map), linear && o_.feature == "luna");
  belongs("count", o_.count != plain.count, o_.far == "centres");
  belongs("order", o_.order.has_value(), o_.far == "centres" || o_.far == "taylor");
  belongs("rank", o_.rank != plain.rank, decays_per_key());
  return list;
}

Hybrid::Projected Hybrid::project(const at::Tensor& x, Pass& pass) const {
  const auto [q, k, v] = linears(x, q_, k_, v_);
  Projected p;
  p.q = q_norm_(split_heads(q, o_.heads));
  p.k = k_norm_(split_heads(k, G_));
  p.in.q = p.q, p.in.k = p.k;
  p.in.v = split_heads(v, G_);
  position_.rotate(x, p.in.q, p.in.k, pass);
  if (o_.rotate) p.q = p.in.q, p.k = p.in.k;
  return p;
}

Result Hybrid::attend(const Inputs& in, bool log_norm, Pass& pass) const {
  horner::Options options;
  options.window = o_.window;
  options.sinks = o_.sinks;
  options.log_norm = log_norm;
  return o_.far == "none" ? pass.run("attention", in, options)
                          : pass.run_first("attention", in, options);
}

// ---- what left the window ------------------------------------------------------------------------

Result Hybrid::read_series(Inputs in, const at::Tensor& written, Pass& pass) const {
  const int64_t r = o_.heads / G_;
  const at::Tensor mu = centre_.to(wide(in.k).scalar_type());
  const at::Tensor factor =  // log e^{q.mu}
      (wide(in.q) * mu.repeat_interleave(r, 0)).sum(-1) / std::sqrt(double(K_));
  in.k = wide(in.k) - mu;
  in.v = at::constant_pad_nd(wide(in.v), {0, 1}, 1.0) * written.unsqueeze(-1).unsqueeze(-1);
  horner::Options options;
  options.order = order();
  const at::Tensor both = pass.run("power", in, options).o;  // of [v, 1]
  const at::Tensor sum = both.select(3, V_).clamp_min(1e-30);
  pass.core.in.v = in.v.narrow(3, 0, V_);
  Result result;
  result.o = pass.divide(both.narrow(3, 0, V_), sum);
  result.norm = sum.log() + factor;
  return result;
}

Result Hybrid::read_left(Inputs in, const at::Tensor& written, Pass& pass) const {
  if (o_.far == "taylor") return read_series(in, written, pass);
  at::Tensor log_factor;
  if (centres_.defined()) {
    const auto mapped = centres_(in.q, in.k, written, true, pass);
    in.q = mapped.q, in.k = mapped.k, log_factor = mapped.log_factor;
  } else {
    const bool luna = o_.feature == "luna";
    in.q = luna ? map_(in.q) : features_.queries(in.q);
    in.k = luna ? map_(in.k) : features_.keys(in.k);
    in.k = in.k * written.unsqueeze(-1).unsqueeze(-1);
  }
  horner::Options options;
  options.norm = "sum";
  options.log_norm = true;
  Result result = pass.run("linear", in, options);
  if (log_factor.defined()) result.norm = result.norm + log_factor;
  return result;
}

Hybrid::Parts Hybrid::with_left(const at::Tensor& x, const Inputs& in, Pass& pass) const {
  Parts p;
  p.written = pass.position(x) >= o_.window + o_.sinks;  // token t - w exists and is no sink
  Inputs left = in;
  left.k = pass.delayed(in.k, o_.window, 0);
  left.v = pass.delayed(in.v, o_.window, 1);
  p.near = attend(in, true, pass);
  p.near_core = pass.core;
  p.far = read_left(left, p.written, pass);
  p.far_core = pass.core;
  p.far.o = p.far.o.to(p.near.o.scalar_type());
  p.far.norm =
      (p.far.norm + far_bias_).masked_fill(p.written.logical_not().unsqueeze(-1), kNothing);
  return p;
}

// ---- all tokens ----------------------------------------------------------------------------------

Result Hybrid::read_all(const at::Tensor& x, const Projected& p, Pass& pass) const {
  Inputs in = p.in;
  in.q = unit_length(p.q);
  in.k = unit_length(p.k);
  const at::Tensor rate = wide(decay_(decays_per_key() ? decay_down_(x) : x));
  in.g = -at::softplus(decays_per_key() ? split_heads(rate, G_) : rate);
  if (o_.far == "mlstm") return pass.run_gated(in, 15 * (wide(input_gate_(x)) / 15).tanh(), in.g);
  if (o_.far == "gla") return pass.run("linear", in);
  in.beta = wide(beta_(x)).sigmoid();
  return pass.run("delta", in);
}

at::Tensor Hybrid::factor(const at::Tensor& y) const {
  if (o_.far != "gla" && o_.far != "mlstm") return far_scale_;
  return far_scale_ * (wide(y).square().mean(-1) + 1e-5).rsqrt();  // c / rms(y)
}

Hybrid::Parts Hybrid::with_all(const at::Tensor& x, const Projected& given, Pass& pass) const {
  Parts p;
  p.far_tokens = pass.position(x) - (o_.window + o_.sinks - 1);
  p.written = p.far_tokens > 0;
  p.near = attend(given.in, true, pass);
  p.near_core = pass.core;
  p.far = read_all(x, given, pass);
  p.far_core = pass.core;
  p.factor = factor(p.far.o);
  p.far.o = (wide(p.far.o) * p.factor.unsqueeze(-1) + far_mean_).to(p.near.o.scalar_type());
  const at::Tensor mass = wide(mass_(x));
  p.far.norm = (mass + p.far_tokens.clamp_min(1).to(mass.scalar_type()).log().unsqueeze(-1))
                   .masked_fill(p.written.logical_not().unsqueeze(-1), kNothing);
  return p;
}

// -------------------------------------------------------------------------------------------------

// Two ops have run, so the system is given: as for attention, one slot for each token, read by the rows of the map. The map
// is made of the maps of the two calls.
void Hybrid::set_core(const Parts& parts, const Result& both, Pass& pass) const {
  const at::Tensor near = (parts.near.norm - both.norm).exp();
  const at::Tensor share = (parts.far.norm - both.norm).exp();
  const at::Tensor far = parts.factor.defined() ? share * parts.factor : share;
  at::Tensor beyond = map_of(parts.far_core);
  if (reads_left()) {  // column u is token u - w
    beyond = beyond * parts.written.unsqueeze(1).unsqueeze(1);
    const int64_t T = beyond.size(3), late = std::min(o_.window, T);
    beyond = at::constant_pad_nd(beyond.narrow(3, late, T - late), {0, late});
  }
  const at::Tensor map = map_of(parts.near_core) * by_rows(near) + beyond * by_rows(far);
  System s;
  s.u = parts.near_core.in.v.repeat_interleave(o_.heads / G_, 2);
  s.C = map.transpose(1, 2);
  const int64_t T = map.size(3);
  s.B = at::eye(T, map.options()).view({1, T, 1, T}).expand_as(s.C);
  s.Lambda = at::ones_like(s.C.narrow(3, 0, 1));
  s.D = at::zeros_like(s.C.select(3, 0));
  pass.core = parts.near_core;
  pass.core.system = s;
  // far_mean comes after the reading, as a bias does: the map does not show it.
  pass.core.o = far_mean_.defined() ? both.o - share.unsqueeze(-1) * far_mean_ : both.o;
}

at::Tensor Hybrid::mix(const at::Tensor& x, Pass& pass) {
  const Projected p = project(x, pass);
  if (o_.far == "none") return out_(join_heads(attend(p.in, false, pass).o));
  const Parts parts = reads_left() ? with_left(x, p.in, pass) : with_all(x, p, pass);
  const Result both = merge(parts.near, parts.far);
  if (pass.wants_core()) set_core(parts, both, pass);
  return out_(join_heads(both.o));
}

}  // namespace horner
