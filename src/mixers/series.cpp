#include "mixers/series.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/precision.h"

namespace horner {
namespace {

bool needs_sum(std::string_view norm) {
  return norm == "sum" || norm == "detach" || norm == "clampden";
}

}  // namespace

Series::Series(const std::string& name, int64_t D, const SeriesOptions& o)
    : Mixer(name, D),
      o_(o),
      G_(o.groups > 0 ? o.groups : o.heads),
      K_(D / std::max<int64_t>(o.heads, 1)) {
  check_heads(name, D, o.heads);
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
  q_ = linear(*this, "q", D, H * K_);
  k_ = linear(*this, "k", D, G_ * K_);
  v_ = linear(*this, "v", D, G_ * K_);
  out_ = linear(*this, "out", H * K_, D);
  conv_ = short_conv(*this, "conv", (H + 2 * G_) * K_, {o.conv, o.conv_activation, false});
  q_norm_ = head_norm(*this, "q_norm", o.qk_norm ? "rms" : "none", 1e-6, {K_});
  k_norm_ = head_norm(*this, "k_norm", o.qk_norm ? "rms" : "none", 1e-6, {K_});
  position_ = Position(*this, D, G_, K_, o.position);
  features_ = Features(*this, o.feature, H, G_, K_, 0);
  if (o.centre == "mean") centre_ = register_buffer("centre", at::zeros({G_, K_}));
  if (o.centre == "learned") centre_ = register_parameter("centre", at::zeros({G_, K_}));
  if (o.input_gate) input_gate_ = linear(*this, "input_gate", D, G_, true);
  if (o.output_gate != "none") output_gate_ = linear(*this, "output_gate", D, H, true);
  if (o.norm == "gate" || o.norm == "cumgate") norm_gate_ = linear(*this, "norm_gate", D, H, true);
  if (o.decay == "softplus") decay_ = linear(*this, "decay", D, G_);
  if (scale_free(o.norm)) norm_ = head_norm(*this, "norm", o.norm, 1e-5, {K_});
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
  at::Tensor q = q_(x), k = k_(x), v = v_(x);
  if (conv_.weight.defined()) {
    const auto parts =
        conv_(at::cat({q, k, v}, -1), pass).split_with_sizes({H * K_, G_ * K_, G_ * K_}, -1);
    q = parts[0], k = parts[1], v = parts[2];
  }
  Inputs in;
  in.q = q_norm_(split_heads(q, H));
  in.k = k_norm_(split_heads(k, G_));
  in.v = split_heads(v, G_);
  position_.rotate(x, in.q, in.k, pass);
  in.q = features_.queries(in.q);
  in.k = features_.keys(in.k);
  if (input_gate_.weight.defined()) in.v = in.v * input_gate_(x).sigmoid().unsqueeze(-1);
  if (decay_.weight.defined()) in.g = -at::softplus(wide(decay_(x)));
  return in;
}

void Series::calibrate(const at::Tensor& x) {
  if (o_.centre != "mean") return;
  const c10::NoGradGuard no_graph;
  const State nothing;
  const Context plain;
  Pass pass(nothing, plain);
  centre_.copy_(project(x, pass).k.flatten(0, 1).mean(0));
}

// The log of what y_t is divided by, sum aside.
at::Tensor Series::log_divisor(const at::Tensor& x, const at::Tensor& log_sum, Pass& pass) const {
  if (o_.norm == "clampden") return log_sum.clamp_min(0);
  if (o_.norm == "detach") return log_sum.clamp_min(0).detach();
  if (o_.norm == "cumgate") return pass.running_sum(wide(norm_gate_(x)).exp()).clamp_min(1).log();
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
    if (log_by.defined()) o = pass.divide(o, log_by.expand(o.sizes().slice(0, 3)).exp());
  }
  const at::Tensor gate =
      output_gate_.weight.defined() ? output_gate_(x).sigmoid().unsqueeze(-1) : at::Tensor();
  if (o_.output_gate == "pre") o = o * gate;
  if (scale_free(o_.norm)) o = norm_(o);
  if (o_.output_gate == "post") o = o * gate;
  return out_(join_heads(o));
}

}  // namespace horner
