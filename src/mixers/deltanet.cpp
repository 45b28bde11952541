#include "mixers/deltanet.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "nn/heads.h"
#include "nn/linears.h"
#include "nn/precision.h"

namespace horner {

DeltaNet::DeltaNet(int64_t D, const Options& o) : Mixer("deltanet", D), o_(o) {
  const int64_t H = o.heads, K = head_width(name(), "expand_k", D, H, o.expand_k);
  const int64_t V = head_width(name(), "expand_v", D, H, o.expand_v);
  check_at_least(name(), "conv", double(o.conv), 0);
  q_ = linear(*this, "q", D, H * K);
  k_ = linear(*this, "k", D, H * K);
  v_ = linear(*this, "v", D, H * V);
  beta_ = linear(*this, "beta", D, H);
  out_ = linear(*this, "out", H * V, D);
  conv_ = short_conv(*this, "conv", H * (2 * K + V), {o.conv, "silu", false});
  norm_ = head_norm(*this, "norm", "rms", 1e-5, {V});
  position_ = Position(*this, D, H, K, o.position);
}

at::Tensor DeltaNet::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads;
  auto [q, k, v, b] = linears(x, q_, k_, v_, beta_);
  if (!conv_.weight.defined()) q = at::silu(q), k = at::silu(k), v = at::silu(v);
  const int64_t K = q.size(2) / H;
  const auto qkv = conv_({{q, K}, {k, K}, {v}}, pass);  // q and k of length 1
  Inputs in;
  in.q = split_heads(qkv[0], H);
  in.k = split_heads(qkv[1], H);
  in.v = split_heads(qkv[2], H);
  position_.rotate(x, in.q, in.k, pass);
  in.beta = wide(b).sigmoid() * (o_.negative ? 2.0 : 1.0);
  horner::Options options;
  options.scale = 1 / std::sqrt(double(in.q.size(3)));
  return out_(join_heads(norm_(pass.run("delta", in, options).o)));
}

}  // namespace horner
