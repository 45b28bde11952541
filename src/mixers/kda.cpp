#include "mixers/kda.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/precision.h"

namespace horner {

Kda::Kda(int64_t D, const Options& o) : Mixer("kda", D), o_(o) {
  const int64_t H = o.heads, K = head_width(name(), "expand_k", D, H, o.expand_k);
  const int64_t V = head_width(name(), "expand_v", D, H, o.expand_v);
  check_at_least(name(), "rank", double(o.rank), 0);
  check_at_least(name(), "conv", double(o.conv), 0);
  check_at_least(name(), "norm_eps", o.norm_eps, 0);
  const int64_t rank = o.rank > 0 ? o.rank : V;
  q_ = linear(*this, "q", D, H * K);
  k_ = linear(*this, "k", D, H * K);
  v_ = linear(*this, "v", D, H * V);
  beta_ = linear(*this, "beta", D, H);
  decay_down_ = linear(*this, "decay_down", D, rank);
  decay_up_ = linear(*this, "decay_up", rank, H * K);
  gate_down_ = linear(*this, "gate_down", D, rank);
  gate_up_ = linear(*this, "gate_up", rank, H * V, true);
  out_ = linear(*this, "out", H * V, D);
  A_log_ = register_parameter("A_log", uniform({H}, 1, 16).log());
  step_bias_ = register_parameter("step_bias", inverse_softplus_of_steps(H * K));
  conv_ = short_conv(*this, "conv", H * (2 * K + V), {o.conv, "silu", false});
  norm_ = head_norm(*this, "norm", "rms", o.norm_eps, {V});
  position_ = Position(*this, D, H, K, o.position);
}

at::Tensor Kda::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads;
  const at::Tensor q = q_(x), k = k_(x), v = v_(x);
  at::Tensor qkv = at::cat({q, k, v}, -1);
  qkv = conv_.weight.defined() ? conv_(qkv, pass) : at::silu(qkv);
  const auto parts = qkv.split_with_sizes({q.size(2), k.size(2), v.size(2)}, -1);
  Inputs in;
  in.q = unit_length(split_heads(parts[0], H));
  in.k = unit_length(split_heads(parts[1], H));
  in.v = split_heads(parts[2], H);
  position_.rotate(x, in.q, in.k, pass);
  in.beta = wide(beta_(x)).sigmoid() * (o_.negative ? 2.0 : 1.0);
  const at::Tensor step = at::softplus(wide(decay_up_(decay_down_(x))) + step_bias_);
  in.g = -wide(A_log_).exp().unsqueeze(-1) * split_heads(step, H);  // (B,T,H,K)
  horner::Options options;
  options.scale = 1 / std::sqrt(double(in.q.size(3)));
  const at::Tensor o = norm_(pass.run("delta", in, options).o);
  return out_(join_heads(o) * gate_up_(gate_down_(x)).sigmoid());
}

}  // namespace horner
