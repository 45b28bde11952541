#include "mixers/gated_deltanet.h"

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

GatedDeltaNet::GatedDeltaNet(int64_t D, const Options& o)
    : Mixer("gated_deltanet", D), o_(o), H_(o.value_heads > 0 ? o.value_heads : o.heads) {
  const int64_t K = head_width(name(), "expand_k", D, o.heads, o.expand_k);
  const int64_t V = head_width(name(), "expand_v", D, H_, o.expand_v);
  HORNER_CHECK(
      H_ % o.heads == 0,
      "[gated_deltanet] heads = {} must divide value_heads, got {}",
      o.heads,
      o.value_heads
  );
  check_at_least(name(), "conv", double(o.conv), 0);
  check_at_least(name(), "norm_eps", o.norm_eps, 0);
  q_ = linear(*this, "q", D, o.heads * K);
  k_ = linear(*this, "k", D, o.heads * K);
  v_ = linear(*this, "v", D, H_ * V);
  beta_ = linear(*this, "beta", D, H_);
  decay_ = linear(*this, "decay", D, H_);
  gate_ = linear(*this, "gate", D, H_ * V);
  out_ = linear(*this, "out", H_ * V, D);
  A_log_ = parameter(*this, "A_log", [&] { return uniform({H_}, 1e-3, 16).log(); });
  step_bias_ = parameter(*this, "step_bias", [&] { return inverse_softplus_of_steps(H_); });
  conv_ = short_conv(*this, "conv", 2 * o.heads * K + H_ * V, {o.conv, "silu", false});
  norm_ = head_norm(*this, "norm", "rms", o.norm_eps, {V});
  position_ = Position(*this, D, o.heads, K, o.position);
}

at::Tensor GatedDeltaNet::mix(const at::Tensor& x, Pass& pass) {
  auto [q, k, v, b, step, z] = linears(x, q_, k_, v_, beta_, decay_, gate_);
  if (!conv_.weight.defined()) q = at::silu(q), k = at::silu(k), v = at::silu(v);
  const int64_t K = q.size(2) / o_.heads;
  const auto qkv = conv_({{q, K}, {k, K}, {v}}, pass);  // q and k of length 1
  Inputs in;
  in.q = split_heads(qkv[0], o_.heads);
  in.k = split_heads(qkv[1], o_.heads);
  in.v = split_heads(qkv[2], H_);
  position_.rotate(x, in.q, in.k, pass);
  if (H_ > o_.heads) {
    in.q = in.q.repeat_interleave(H_ / o_.heads, 2);
    in.k = in.k.repeat_interleave(H_ / o_.heads, 2);
  }
  in.beta = wide(b).sigmoid() * (o_.negative ? 2.0 : 1.0);
  in.g = -bounded_exp(wide(A_log_)) * at::softplus(wide(step) + step_bias_);
  horner::Options options;
  options.scale = 1 / std::sqrt(double(in.q.size(3)));
  return out_(norm_.gated(pass.run("delta", in, options).o, z, Gate::silu));
}

}  // namespace horner
