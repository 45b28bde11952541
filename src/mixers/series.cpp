#include "mixers/series.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/linears.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {
namespace {

bool needs_sum(std::string_view norm) {
  return norm == "sum" || norm == "detach" || norm == "clampden";
}

// y_t = x_{t-1}, zeros at the start.
at::Tensor one_later(const at::Tensor& x, at::Tensor& last) {
  if (!last.defined()) last = at::zeros_like(x.sum(1, true));
  const at::Tensor all = at::cat({last, x}, 1);
  last = all.narrow(1, x.size(1), 1);
  return all.narrow(1, 0, x.size(1));
}

}  // namespace

Series::Series(const std::string& name, int64_t D, const SeriesOptions& o)
    : Mixer(name, D),
      o_(o),
      G_(o.groups > 0 ? o.groups : o.heads),
      K_(o.key > 0 ? o.key : D / std::max<int64_t>(o.heads, 1)),
      V_(o.value > 0 ? o.value : D / std::max<int64_t>(o.heads, 1)) {
  check_at_least(name, "heads", double(o.heads), 1);
  check_at_least(name, "key", double(o.key), 0);
  check_at_least(name, "value", double(o.value), 0);
  if (o.key == 0 || o.value == 0) check_heads(name, D, o.heads);
  HORNER_CHECK(!o.bias || !o.qkv_bias, "[{}] bias and qkv_bias exclude each other", name);
  HORNER_CHECK(
      o.qk_norm_eps >= 0, "[{}] qk_norm_eps must be at least 0, got {}", name, o.qk_norm_eps
  );
  HORNER_CHECK(
      !o.norm_bias || o.norm == "layer",
      "[{}] norm_bias belongs to norm = layer, not {}",
      name,
      o.norm
  );
  HORNER_CHECK(
      o.groups >= 0 && o.heads % G_ == 0,
      "[{}] groups must divide heads = {}, got {}",
      name,
      o.heads,
      o.groups
  );
  check_at_least(name, "conv", double(o.conv), 0);
  HORNER_CHECK(
      o.causal || (o.norm != "cumgate" && o.conv == 0 && o.position.kind != "selective_rope"),
      "[{}] causal = false takes no norm = cumgate, no conv and no selective_rope: they run "
      "forward",
      name
  );
  const int64_t H = o.heads;
  const bool qkv_bias = o.bias || o.qkv_bias;
  q_ = linear(*this, "q", D, H * K_, qkv_bias);
  k_ = linear(*this, "k", D, G_ * K_, qkv_bias);
  v_ = linear(*this, "v", D, G_ * V_, qkv_bias);
  out_ = linear(*this, "out", H * V_, D, o.bias);
  conv_ = short_conv(*this, "conv", (H + G_) * K_ + G_ * V_, {o.conv, o.conv_activation, false});
  q_norm_ = head_norm(*this, "q_norm", o.qk_norm ? "rms" : "none", o.qk_norm_eps, {K_});
  k_norm_ = head_norm(*this, "k_norm", o.qk_norm ? "rms" : "none", o.qk_norm_eps, {K_});
  position_ = Position(*this, D, G_, K_, o.position);
  features_ = Features(*this, o.feature, H, G_, K_, 0);
  if (o.centre == "mean") centre_ = buffer(*this, "centre", [&] { return at::zeros({G_, K_}); });
  if (o.centre == "learned")
    centre_ = parameter(*this, "centre", [&] { return at::zeros({G_, K_}); });
  if (o.input_gate) input_gate_ = linear(*this, "input_gate", D, G_, true);
  if (o.output_gate != "none") output_gate_ = linear(*this, "output_gate", D, H, true);
  if (o.norm == "gate" || o.norm == "cumgate") norm_gate_ = linear(*this, "norm_gate", D, H, true);
  if (o.decay != "none") decay_ = linear(*this, "decay", D, G_, o.decay == "shifted");
  if (scale_free(o.norm)) norm_ = head_norm(*this, "norm", o.norm, 1e-5, {V_});
  if (norm_.weight.defined() && o.norm_start == "unit")
    start_at(norm_.weight, [&] { return at::full({V_}, 1 / std::sqrt(double(V_))); });
  if (o.norm_bias) norm_bias_ = parameter(*this, "norm_bias", [&] { return at::zeros({V_}); });
}

std::vector<std::string> Series::voids() const {
  std::vector<std::string> list;
  if (o_.output_gate == "pre" && scale_free(o_.norm))
    list.push_back(fmt::format(
        "output_gate = pre: a positive factor before norm = {} changes nothing", o_.norm
    ));
  if (o_.qk_norm && o_.feature == "cosine")
    list.emplace_back("qk_norm: feature = cosine takes the lengths of q and k away");
  return list;
}

Inputs Series::project(const at::Tensor& x, Pass& pass) const {
  const int64_t H = o_.heads;
  auto [q, k, v] = linears(x, q_, k_, v_);
  if (conv_.weight.defined()) {
    const auto qkv = conv_({{q}, {k}, {v}}, pass);
    q = qkv[0], k = qkv[1], v = qkv[2];
  }
  Inputs in;
  in.q = q_norm_(split_heads(q, H));
  in.k = k_norm_(split_heads(k, G_));
  in.v = split_heads(v, G_);
  position_.rotate(x, in.q, in.k, pass);
  in.q = features_.queries(in.q);
  in.k = features_.keys(in.k);
  if (input_gate_.weight.defined()) in.v = in.v * input_gate_(x).sigmoid().unsqueeze(-1);
  if (o_.decay == "softplus") in.g = -at::softplus(wide(decay_(x)));
  if (o_.decay == "shifted") in.g = pass.over_time(wide(decay_(x)), one_later) / 1024;
  return in;
}

at::Tensor Series::keys(const at::Tensor& x) const {
  const c10::NoGradGuard no_graph;
  const State nothing;
  const Context plain;
  Pass pass(nothing, plain);
  return project(x, pass).k;
}

void Series::calibrate(const at::Tensor& x) {
  if (o_.centre != "mean") return;
  const c10::NoGradGuard no_graph;
  centre_.copy_(keys(x).flatten(0, 1).mean(0));
}

// The log of what y_t is divided by, sum aside.
at::Tensor Series::log_divisor(const at::Tensor& x, const at::Tensor& log_sum, Pass& pass) const {
  if (o_.norm == "clampden") return log_sum.clamp_min(0);
  if (o_.norm == "detach") return log_sum.clamp_min(0).detach();
  if (o_.norm == "cumgate")
    return pass.running_sum(bounded_exp(wide(norm_gate_(x)))).clamp_min(1).log();
  const at::Tensor t = o_.causal ? pass.position(x) + 1 : pass.length(x);
  at::Tensor log_t = t.to(wide(x).scalar_type()).log().unsqueeze(-1);  // (B,T,1)
  if (o_.norm == "gate") log_t = log_t - at::log_sigmoid(wide(norm_gate_(x)));
  return log_t;
}

at::Tensor Series::mix(const at::Tensor& x, Pass& pass) {
  Inputs in = project(x, pass);
  if (centre_.defined()) in.k = in.k - centre_.to(in.k.scalar_type());
  const bool divides = !scale_free(o_.norm) && o_.norm != "sum";  // by something of its own
  at::Tensor log_by;
  if (o_.norm == "count" || o_.norm == "gate" || o_.norm == "cumgate")
    log_by = log_divisor(x, {}, pass);
  const auto [y, log_sum] = weigh(in, needs_sum(o_.norm) || (divides && always_normalised()), pass);
  at::Tensor o = y;
  if (divides) {
    if (needs_sum(o_.norm)) log_by = log_divisor(x, log_sum, pass);
    if (log_sum.defined()) log_by = log_by.defined() ? log_by - log_sum : -log_sum;
    if (log_by.defined()) o = pass.divide(o, bounded_exp(log_by.expand(o.sizes().slice(0, 3))));
  }
  const at::Tensor gate =
      output_gate_.weight.defined() ? output_gate_(x).sigmoid().unsqueeze(-1) : at::Tensor();
  if (o_.output_gate == "pre") o = o * gate;
  if (scale_free(o_.norm)) o = norm_(o);
  if (norm_bias_.defined()) o = o + norm_bias_.to(o.scalar_type());
  if (o_.output_gate == "post") o = o * gate;
  return out_(join_heads(o));
}

std::string Series::equation_of(const std::string& kernel, const std::string& where) const {
  const bool decays = o_.decay != "none", plain = o_.feature == "identity";
  const std::string weight = (decays ? "d_ts " : "") + kernel, y = "sum_s " + weight + " v_s",
                    sum = "sum_s " + weight, t = o_.causal ? "t" : "T", &norm = o_.norm;
  std::string text = "o_t = y_t, y_t = " + y;  // none
  if (norm == "sum") text = "o_t = " + y + " / " + sum;
  if (norm == "detach") text = "o_t = " + y + " / " + sum + " without its gradient";
  if (norm == "clampden") text = "o_t = " + y + " / max(" + sum + ", 1)";
  if (norm == "l2") text = "o_t = y_t / |y_t|, y_t = " + y;
  if (norm == "unit_d") text = "o_t = V y_t / |y_t|, y_t = " + y;
  if (norm == "rms" || norm == "layer") text = "o_t = " + norm + "(y_t), y_t = " + y;
  if (norm == "count") text = "o_t = y_t / " + t + ", y_t = " + y;
  if (norm == "gate") text = "o_t = sigmoid(x_t W_g) y_t / " + t + ", y_t = " + y;
  if (norm == "cumgate") text = "o_t = y_t / max(sum_s e^{x_s W_g}, 1), y_t = " + y;
  return text + where + ", x_ts = " + (plain ? "q_t.k_s" : "phi(q_t).phi(k_s)") + "/sqrt K" +
         (decays ? ", d_ts the decay since s" : "");
}

}  // namespace horner
