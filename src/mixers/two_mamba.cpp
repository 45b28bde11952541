#include "mixers/two_mamba.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"
#include "mixers/softmax.h"
#include "nn/heads.h"
#include "nn/linears.h"
#include "nn/precision.h"

namespace horner {

TwoMamba::TwoMamba(int64_t D, const Options& o) : Mixer("two_mamba", D), o_(o) {
  check_heads(name(), D, o.heads);
  check_at_least(name(), "conv", double(o.conv), 0);
  q_ = linear(*this, "q", D, D);
  k_ = linear(*this, "k", D, D);
  v_ = linear(*this, "v", D, D);
  if (o.decay) decay_ = linear(*this, "decay", D, o.heads);
  out_ = linear(*this, "out", D, D);
  conv_ = short_conv(
      *this, "conv", 3 * D, {o.conv, o.conv_activation == "silu" ? "silu" : "none", o.conv_bias}
  );
  HORNER_CHECK(
      o.decay || o.kernel != "exp", "[two_mamba] kernel = exp without decay is the mixer softmax"
  );
  if (o.kernel == "linear") {
    if (o.step) step_ = linear(*this, "step", D, o.heads);
    norm_ = head_norm(*this, "norm", "rms", 1e-5, {D});
  }
}

at::Tensor TwoMamba::mix(const at::Tensor& x, Pass& pass) {
  const auto [q, k, v, logit, step] = linears(x, q_, k_, v_, decay_, step_);
  const auto qkv = conv_({{q}, {k}, {v}}, pass);
  Inputs in;
  const bool silu = o_.conv_activation == "silu_qk";
  in.q = split_heads(silu ? at::silu(qkv[0]) : qkv[0], o_.heads);
  in.k = split_heads(silu ? at::silu(qkv[1]) : qkv[1], o_.heads);
  in.v = split_heads(qkv[2], o_.heads);
  if (o_.decay) in.g = -at::softplus(wide(logit));  // (B,T,H)
  horner::Options options;
  if (o_.kernel == "exp") return out_(join_heads(forgetting_attention(in, options, pass).o));
  if (o_.kernel == "linear") {
    if (o_.step) in.v = wide(in.v) * at::softplus(wide(step)).unsqueeze(-1);  // v dt
    return out_(norm_(join_heads(pass.run("linear", in).o)));
  }
  options.order = 2;
  options.coefficients = {0, 0, 1};  // x_ts^2 alone
  options.norm = "sum";
  options.eps = 1e-8;
  return out_(join_heads(pass.run("power", in, options).o));
}

std::string TwoMamba::equation(std::string_view) const {
  const std::string E = o_.kernel == "square" ? "x_ts^2"
                        : o_.kernel == "exp"  ? "e^{x_ts}"
                                              : "x_ts",
                    weight = (o_.decay ? "d_ts " : "") + E,
                    v = o_.kernel == "linear" && o_.step ? " softplus(x_s W_dt) v_s" : " v_s";
  return "o_t = sum_s " + weight + v + (o_.kernel == "linear" ? "" : " / sum_s " + weight) +
         ", x_ts = q_t.k_s/sqrt K" + (o_.decay ? ", d_ts the decay since s" : "");
}

}  // namespace horner
