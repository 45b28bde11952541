#include "mixers/metala.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/fused/gates.h"
#include "nn/heads.h"
#include "nn/linears.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {

MetaLa::MetaLa(int64_t D, const Options& o) : Mixer("metala", D), o_(o) {
  const int64_t H = o.heads, K = head_width(name(), "expand_k", D, H, o.expand_k);
  const int64_t V = head_width(name(), "expand_v", D, H, o.expand_v);
  check_at_least(name(), "conv", double(o.conv), 0);
  HORNER_CHECK(
      o.temperature > 0 && std::isfinite(o.temperature),
      "[metala] temperature must be above 0, got {}",
      o.temperature
  );
  conv_ = short_conv(*this, "conv", D, {o.conv, "silu", false});
  q_ = linear(*this, "q", D, H * K);
  if (o.key == "own") k_ = linear(*this, "k", D, H * K);
  decay_ = linear(*this, "decay", D, H * K);
  v_ = linear(*this, "v", D, H * V);
  gate_ = linear(*this, "gate", D, H * V, true);
  out_ = linear(*this, "out", H * V, D);
  if (o.augment) augment_ = parameter(*this, "augment", [&] { return at::zeros({H, K}); });
  norm_ = head_norm(*this, "norm", o.norm, 1e-5, {});
}

at::Tensor MetaLa::mix(const at::Tensor& given, Pass& pass) {
  const int64_t H = o_.heads;
  const at::Tensor x = conv_(given, pass);
  Inputs in;
  const auto [q, v, logit, k, z] = linears(x, q_, v_, decay_, k_, gate_);
  in.q = split_heads(q, H);
  in.v = split_heads(v, H);
  const Decay to_decay{.negated = true, .scale = 1 / o_.temperature};
  const DecayAndKeys own =  // g = log sigmoid(.) / temperature, k = 1 - a
      k.defined() ? DecayAndKeys{decay(logit, to_decay), k} : decay_and_keys(logit, to_decay);
  in.g = split_heads(own.g, H);
  in.k = split_heads(own.k, H);
  horner::Options options;
  options.scale = 1 / std::sqrt(double(in.q.size(3)));
  at::Tensor o = pass.run("linear", in, options).o;
  // o_t += sigmoid(w_t v_t), w_t = sum_i q k waug
  const double offset = o_.norm == "layer" ? -0.5 : 0;
  if (augment_.defined()) o = augment({in.q, in.k, augment_, in.v, o, offset});
  return out_(norm_.gated(o, z, Gate::silu));
}

std::string MetaLa::equation(std::string_view) const {
  return fmt::format(
      "S_t = diag(a_t) S_{{t-1}} + {}^T v_t, o_t = q_t S_t/sqrt K{}, y_t = silu(x_t W_g) * {}(o_t)",
      o_.key == "own" ? "k_t" : "(1 - a_t)",
      o_.augment ? " + sigmoid(w_t v_t)" : "",
      o_.norm
  );
}

}  // namespace horner
