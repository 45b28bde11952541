#include "mixers/linear_attention.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/linears.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {

LinearAttention::LinearAttention(int64_t D, const Options& o)
    : Mixer("linear", D),
      o_(o),
      G_(o.groups > 0 ? o.groups : o.heads),
      K_(o.key > 0 ? o.key : D / std::max<int64_t>(o.heads, 1)),
      V_(D / std::max<int64_t>(o.heads, 1)) {
  check_heads(name(), D, o.heads);
  check_at_least(name(), "key", double(o.key), 0);
  HORNER_CHECK(
      o.groups >= 0 && o.heads % G_ == 0,
      "[linear] groups must divide heads = {}, got {}",
      o.heads,
      o.groups
  );
  check_at_least(name(), "power", double(o.power), 1);
  check_at_least(name(), "conv", double(o.conv), 0);
  check_at_least(name(), "eps", o.eps, 0);
  HORNER_CHECK(
      !o.series || o.power > 1, "[linear] series needs power of at least 2, got {}", o.power
  );
  HORNER_CHECK(
      o.causal || (o.conv == 0 && o.position.kind != "selective_rope"),
      "[linear] causal = false takes no conv and no selective_rope: they run forward"
  );
  const int64_t Q = o.heads * K_;
  q_ = linear(*this, "q", D, Q, o.bias);
  k_ = linear(*this, "k", D, G_ * K_, o.bias);
  v_ = linear(*this, "v", D, G_ * V_, o.bias);
  out_ = linear(*this, "out", D, D, o.bias);
  conv_ = short_conv(*this, "conv", Q + G_ * (K_ + V_), {o.conv, "silu", false});
  position_ = Position(*this, D, G_, K_, o.position);
  features_ = Features(*this, o.feature, o.heads, G_, K_, o.feature_dim);
  HORNER_CHECK(
      o.norm != "sum" || features_.positive() || o.feature == "fourier" || o.power % 2 == 0,
      "[linear] norm = sum needs weights of one sign; feature = {} has both, take norm = none or "
      "an even power",
      o.feature
  );
  if (o.norm == "gate") norm_gate_ = linear(*this, "norm_gate", D, o.heads, true);
  if (o.norm == "l2") norm_ = head_norm(*this, "norm", "l2", 1e-5, {V_});
  if (o.feature == "cosine")
    exponent_ = parameter(*this, "exponent", [&] { return at::full({G_}, 0.5); });
}

at::Tensor LinearAttention::mix(const at::Tensor& x, Pass& pass) {
  auto [q, k, v] = linears(x, q_, k_, v_);
  if (conv_.weight.defined()) {
    const auto qkv = conv_({{q}, {k}, {v}}, pass);
    q = qkv[0], k = qkv[1], v = qkv[2];
  }
  Inputs in;
  in.q = split_heads(q, o_.heads);
  in.k = split_heads(k, G_);
  in.v = split_heads(v, G_);
  position_.rotate(x, in.q, in.k, pass);
  in.q = features_.queries(in.q);
  in.k = features_.keys(in.k);
  const bool counts = exponent_.defined() || (o_.norm == "gate" && o_.causal);
  const at::Tensor seen = counts ? pass.position(x) + 1 : at::Tensor();  // (B,T)
  if (exponent_.defined()) {
    const at::Tensor log_s = seen.to(wide(x).scalar_type()).log().unsqueeze(-1);  // (B,T,1)
    in.v = in.v * (-log_s * wide(exponent_).sigmoid())
                      .exp()
                      .unsqueeze(-1)
                      .to(in.v.scalar_type());  // v_s / s^{sigmoid c}
  }
  horner::Options options;
  options.causal = o_.causal;
  options.norm = o_.norm == "sum" ? "sum" : "none";
  options.eps = o_.eps;
  if (o_.power > 1) {
    options.order = o_.power;
    if (!o_.series) {
      options.coefficients.assign(size_t(o_.power) + 1, 0.0);
      options.coefficients.back() = 1.0;
    }
    options.odd = o_.power % 2 == 1;  // the features are positive, so the sum is
  }
  at::Tensor o = pass.run(o_.power > 1 ? "power" : "linear", in, options).o;
  if (o_.norm == "l2") o = norm_(o);
  if (o_.norm == "gate") {
    const at::Tensor t = o_.causal ? seen : pass.length(x);
    // 1 / sigmoid(z) = 1 + e^{-z}; beyond 80 its gradient would be no number.   (B,T,H)
    const at::Tensor inverse = 1 + (-wide(norm_gate_(x))).clamp_max(80).exp();
    o = pass.divide(o, t.unsqueeze(-1) * inverse);
  }
  return out_(join_heads(o));
}

std::string LinearAttention::equation(std::string_view) const {
  const std::string A = o_.feature == "identity" ? "q_t.k_s" : "phi(q_t).phi(k_s)",
                    weight = o_.series      ? "p(" + A + "/sqrt F)"
                             : o_.power > 1 ? fmt::format("({}/sqrt F)^{}", A, o_.power)
                                            : A,
                    v = o_.feature == "cosine" ? " s^{-c} v_s" : " v_s", y = "sum_s " + weight + v;
  std::string text = "o_t = " + y;  // none
  if (o_.norm == "sum") text += " / sum_s " + weight;
  if (o_.norm == "l2") text = "o_t = y_t / |y_t|, y_t = " + y;
  if (o_.norm == "gate")
    text = std::string("o_t = sigmoid(x_t W_g) y_t / ") + (o_.causal ? "t" : "T") + ", y_t = " + y;
  return o_.series ? fmt::format("{}, p(x) = sum_{{n<={}}} x^n/n!", text, o_.power) : text;
}

}  // namespace horner
