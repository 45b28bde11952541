#include "mixers/two_mamba.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "mixers/softmax.h"
#include "nn/heads.h"
#include "nn/precision.h"

namespace horner {

TwoMamba::TwoMamba(int64_t D, const Options& o) : Mixer("two_mamba", D), o_(o) {
  check_heads(name(), D, o.heads);
  check_at_least(name(), "conv", double(o.conv), 0);
  q_ = linear(*this, "q", D, D);
  k_ = linear(*this, "k", D, D);
  v_ = linear(*this, "v", D, D);
  decay_ = linear(*this, "decay", D, o.heads);
  out_ = linear(*this, "out", D, D);
  conv_ = short_conv(*this, "conv", 3 * D, {o.conv, o.conv_activation, false});
  if (o.kernel == "linear") {
    step_ = linear(*this, "step", D, o.heads);
    norm_ = head_norm(*this, "norm", "rms", 1e-5, {D});
  }
}

at::Tensor TwoMamba::mix(const at::Tensor& x, Pass& pass) {
  const auto qkv = conv_(at::cat({q_(x), k_(x), v_(x)}, -1), pass).split(width(), -1);
  Inputs in;
  in.q = split_heads(qkv[0], o_.heads);
  in.k = split_heads(qkv[1], o_.heads);
  in.v = split_heads(qkv[2], o_.heads);
  in.g = -at::softplus(wide(decay_(x)));  // (B,T,H)
  horner::Options options;
  if (o_.kernel == "exp") return out_(join_heads(forgetting_attention(in, options, pass).o));
  if (o_.kernel == "linear") {
    in.v = wide(in.v) * at::softplus(wide(step_(x))).unsqueeze(-1);  // v dt
    return out_(norm_(join_heads(pass.run("linear", in).o)));
  }
  options.order = 2;
  options.coefficients = {0, 0, 1};  // x_ts^2 alone
  options.norm = "sum";
  options.eps = 1e-8;
  return out_(join_heads(pass.run("power", in, options).o));
}

}  // namespace horner
