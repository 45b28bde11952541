#include "mixers/kda.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/fused/gates.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/linears.h"
#include "nn/parameter.h"
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
  A_log_ = parameter(*this, "A_log", [&] { return uniform({H}, 1, 16).log(); });
  step_bias_ = parameter(*this, "step_bias", [&] { return inverse_softplus_of_steps(H * K); });
  conv_ = short_conv(*this, "conv", H * (2 * K + V), {o.conv, "silu", false});
  norm_ = head_norm(*this, "norm", "rms", o.norm_eps, {V});
  position_ = Position(*this, D, H, K, o.position);
}

at::Tensor Kda::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads;
  auto [q, k, v, b, low, gate] = linears(x, q_, k_, v_, beta_, decay_down_, gate_down_);
  if (!conv_.weight.defined()) q = at::silu(q), k = at::silu(k), v = at::silu(v);
  const int64_t K = q.size(2) / H;
  const auto qkv = conv_({{q, K}, {k, K}, {v}}, pass);  // q and k of length 1
  Inputs in;
  in.q = split_heads(qkv[0], H);
  in.k = split_heads(qkv[1], H);
  in.v = split_heads(qkv[2], H);
  position_.rotate(x, in.q, in.k, pass);
  in.beta = wide(b).sigmoid() * (o_.negative ? 2.0 : 1.0);
  const at::Tensor A = bounded_exp(wide(A_log_)).unsqueeze(-1).expand({H, K}).flatten();  // (H K)
  const Decay to_decay{.b = wide(step_bias_), .c = A};
  in.g = split_heads(decay(decay_up_(low), to_decay), H);  // (B,T,H,K)
  horner::Options options;
  options.scale = 1 / std::sqrt(double(in.q.size(3)));
  const at::Tensor z = gate_up_(gate);
  return out_(norm_.gated(pass.run("delta", in, options).o, z, Gate::sigmoid));
}

}  // namespace horner
