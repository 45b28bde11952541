#include "mixers/norm_attention.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/linears.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {

at::Tensor normaliser(std::string_view kind, const at::Tensor& nu) {
  if (kind == "exp") return bounded_exp(nu);
  if (kind == "softplus") return at::softplus(nu);
  if (kind == "sigmoid") return nu.sigmoid();
  if (kind == "exp_exp") return bounded_exp(bounded_exp(nu));
  if (kind == "exp_elu") return bounded_exp(at::elu(nu));
  return kind == "exp_softplus" ? 1 + bounded_exp(nu) : nu.sigmoid().exp();
}

NormAttention::NormAttention(int64_t D, const Options& o)
    : Mixer("norm_attention", D), o_(o), K_(o.key > 0 ? o.key : D / std::max<int64_t>(o.heads, 1)) {
  check_heads(name(), D, o.heads);
  check_at_least(name(), "key", double(o.key), 0);
  check_at_least(name(), "conv", double(o.conv), 0);
  HORNER_CHECK(
      o.offset == "none" || o.normaliser != "exp_exp",
      "[norm_attention] normaliser = exp_exp with an offset divides by about 1e24"
  );
  HORNER_CHECK(
      o.causal || o.conv == 0, "[norm_attention] causal = false takes no conv: it runs forward"
  );
  const int64_t H = o.heads;
  q_ = linear(*this, "q", D, H * K_, true);
  k_ = linear(*this, "k", D, H * K_, true);
  v_ = linear(*this, "v", D, D, true);
  eta_ = linear(*this, "eta", D, H, true);
  out_ = linear(*this, "out", D, D, true);
  conv_ = short_conv(*this, "conv", D + 2 * H * K_, {o.conv, "silu", true});
  features_ = Features(*this, o.feature, H, H, K_, 0);
  if (o.offset == "linear")
    offset_ = parameter(*this, "offset", [&] { return at::linspace(4, 9, H); });
}

at::Tensor NormAttention::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads;
  auto [v, q, k, eta] = linears(x, v_, q_, k_, eta_);
  if (conv_.weight.defined()) {
    const auto vqk = conv_({{v}, {q}, {k}}, pass);
    v = vqk[0], q = vqk[1], k = vqk[2];
  }
  Inputs in;
  in.q = features_.queries(split_heads(q, H));
  in.k = features_.keys(split_heads(k, H));
  in.v = split_heads(v, H);
  horner::Options options;
  options.causal = o_.causal;
  if (o_.scale_keys) options.scale = 1 / std::sqrt(double(K_));
  at::Tensor nu = wide(eta);  // (B,T,H)
  if (offset_.defined()) nu = nu + offset_;
  const at::Tensor o = pass.run("linear", in, options).o;
  return out_(join_heads(pass.divide(o, normaliser(o_.normaliser, nu))));  // o_t = q_t S_t / eta_t
}

}  // namespace horner
