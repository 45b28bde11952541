#include "mixers/metala.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/heads.h"
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
  if (o.augment) augment_ = register_parameter("augment", at::zeros({H, K}));
  norm_ = head_norm(*this, "norm", o.norm, 1e-5, {});
}

at::Tensor MetaLa::mix(const at::Tensor& given, Pass& pass) {
  const int64_t H = o_.heads;
  const at::Tensor x = conv_(given, pass);
  Inputs in;
  in.q = split_heads(q_(x), H);
  in.v = split_heads(v_(x), H);
  in.g = at::log_sigmoid(wide(split_heads(decay_(x), H))) / o_.temperature;
  in.k = k_.weight.defined() ? split_heads(k_(x), H) : -in.g.expm1();  // k = 1 - a
  horner::Options options;
  options.scale = 1 / std::sqrt(double(in.q.size(3)));
  at::Tensor o = pass.run("linear", in, options).o;
  if (augment_.defined()) {
    const at::Tensor w =
        (wide(in.q) * wide(in.k) * augment_).sum(-1, true);  // w_t = sum_i q k waug
    o = o + (w * in.v).sigmoid();                            // o_t += sigmoid(w_t v_t)
  }
  const at::Tensor gate = at::silu(gate_(x));
  return out_(gate * join_heads(norm_(o)).to(gate.scalar_type()));
}

}  // namespace horner
