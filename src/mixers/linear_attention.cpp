#include "mixers/linear_attention.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/precision.h"

namespace horner {

LinearAttention::LinearAttention(int64_t D, const Options& o)
    : Mixer("linear", D),
      o_(o),
      G_(o.groups > 0 ? o.groups : o.heads),
      K_(D / std::max<int64_t>(o.heads, 1)) {
  check_heads(name(), D, o.heads);
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
  q_ = linear(*this, "q", D, D);
  k_ = linear(*this, "k", D, G_ * K_);
  v_ = linear(*this, "v", D, G_ * K_);
  out_ = linear(*this, "out", D, D);
  conv_ = short_conv(*this, "conv", D + 2 * G_ * K_, {o.conv, "silu", false});
  position_ = Position(*this, D, G_, K_, o.position);
  features_ = Features(*this, o.feature, o.heads, G_, K_, o.feature_dim);
  HORNER_CHECK(
      o.norm == "none" || features_.positive() || o.feature == "fourier" || o.power % 2 == 0,
      "[linear] norm = sum needs weights of one sign; feature = {} has both, take norm = none or "
      "an even power",
      o.feature
  );
  if (o.feature == "cosine") exponent_ = register_parameter("exponent", at::full({G_}, 0.5));
}

at::Tensor LinearAttention::mix(const at::Tensor& x, Pass& pass) {
  at::Tensor q = q_(x), k = k_(x), v = v_(x);
  if (conv_.weight.defined()) {
    const auto parts =
        conv_(at::cat({q, k, v}, -1), pass).split_with_sizes({width(), G_ * K_, G_ * K_}, -1);
    q = parts[0], k = parts[1], v = parts[2];
  }
  Inputs in;
  in.q = split_heads(q, o_.heads);
  in.k = split_heads(k, G_);
  in.v = split_heads(v, G_);
  position_.rotate(x, in.q, in.k, pass);
  in.q = features_.queries(in.q);
  in.k = features_.keys(in.k);
  if (exponent_.defined()) {
    const at::Tensor s = pass.position(x) + 1;
    const at::Tensor log_s = s.to(wide(x).scalar_type()).log().unsqueeze(-1);  // (B,T,1)
    in.v = in.v * (-log_s * wide(exponent_).sigmoid())
                      .exp()
                      .unsqueeze(-1)
                      .to(in.v.scalar_type());  // v_s / s^{sigmoid c}
  }
  horner::Options options;
  options.causal = o_.causal;
  options.norm = o_.norm;
  options.eps = o_.eps;
  if (o_.power > 1) {
    options.order = o_.power;
    if (!o_.series) {
      options.coefficients.assign(size_t(o_.power) + 1, 0.0);
      options.coefficients.back() = 1.0;
    }
    options.odd = o_.power % 2 == 1;  // the features are positive, so the sum is
  }
  return out_(join_heads(pass.run(o_.power > 1 ? "power" : "linear", in, options).o));
}

}  // namespace horner
