#include "mixers/gla.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/fused/gates.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/linears.h"
#include "nn/precision.h"

namespace horner {

Gla::Gla(int64_t D, const Options& o) : Mixer("gla", D), o_(o) {
  const int64_t H = o.heads, K = head_width(name(), "expand_k", D, H, o.expand_k);
  const int64_t V = head_width(name(), "expand_v", D, H, o.expand_v);
  check_at_least(name(), "rank", double(o.rank), 1);
  check_at_least(name(), "conv", double(o.conv), 0);
  HORNER_CHECK(
      o.temperature > 0 && std::isfinite(o.temperature),
      "[gla] temperature must be above 0, got {}",
      o.temperature
  );
  HORNER_CHECK(!o.tie_pair_decay || K % 2 == 0, "[gla] tie_pair_decay needs an even K, got {}", K);
  const double gain = std::pow(2.0, -2.5);
  q_ = linear(*this, "q", xavier(H * K, D, gain));
  k_ = linear(*this, "k", xavier(H * K, D, gain));
  v_ = linear(*this, "v", xavier(H * V, D, gain));
  decay_down_ = linear(*this, "decay_down", xavier(o.rank, D, gain));
  decay_up_ =
      linear(*this, "decay_up", xavier(H * (o.tie_pair_decay ? K / 2 : K), o.rank, gain), true);
  if (o.gate) gate_ = linear(*this, "gate", xavier(H * V, D, gain), true);
  out_ = linear(*this, "out", xavier(D, H * V, gain));
  conv_ = short_conv(*this, "conv", H * (2 * K + V), {o.conv, "silu", false});
  norm_ = head_norm(*this, "norm", o.norm, 1e-5, {V});
  position_ = Position(*this, D, H, K, o.position);
}

at::Tensor Gla::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads;
  auto [q, k, v, low, z] = linears(x, q_, k_, v_, decay_down_, gate_);
  if (conv_.weight.defined()) {
    const auto qkv = conv_({{q}, {k}, {v}}, pass);
    q = qkv[0], k = qkv[1], v = qkv[2];
  }
  Inputs in;
  in.q = split_heads(q, H);
  in.k = split_heads(k, H);
  in.v = split_heads(v, H);
  position_.rotate(x, in.q, in.k, pass);
  const Decay to_decay{.negated = true, .scale = 1 / o_.temperature};
  in.g = split_heads(decay(decay_up_(low), to_decay), H);  // log sigmoid(.) / temperature
  if (o_.tie_pair_decay) in.g = at::cat({in.g, in.g}, -1);
  horner::Options options;
  options.scale = 1 / std::sqrt(double(in.q.size(3)));
  const at::Tensor o = pass.run("linear", in, options).o;
  return out_(o_.gate ? norm_.gated(o, z, Gate::silu) : join_heads(norm_(o)));
}

std::string Gla::equation(std::string_view) const {
  return fmt::format(
      "S_t = diag(a_t) S_{{t-1}} + k_t^T v_t, o_t = q_t S_t/sqrt K, a = sigmoid(x W1 W2 + "
      "b)^{{1/{:g}}}, y_t = {}{}",
      o_.temperature,
      o_.gate ? "silu(x_t W_r) * " : "",
      o_.norm == "none" ? "o_t" : o_.norm + "(o_t)"
  );
}

}  // namespace horner
