#include "mixers/retnet.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/linears.h"
#include "nn/precision.h"

namespace horner {

RetNet::RetNet(int64_t D, const Options& o) : Mixer("retnet", D), o_(o) {
  const int64_t K = head_width(name(), "expand_k", D, o.heads, o.expand_k), H = o.heads;
  const int64_t V = head_width(name(), "expand_v", D, H, o.expand_v);
  const double gain = std::pow(2.0, -2.5);
  q_ = linear(*this, "q", xavier(H * K, D, gain));
  k_ = linear(*this, "k", xavier(H * K, D, gain));
  v_ = linear(*this, "v", xavier(H * V, D, gain));
  gate_ = linear(*this, "gate", xavier(H * V, D, gain));
  out_ = linear(*this, "out", xavier(D, H * V, 0.5));
  norm_ = head_norm(*this, "norm", o.norm, 1e-5, {});
  position_ = Position(*this, D, H, K, o.position);
}

at::Tensor RetNet::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads;
  Inputs in;
  const auto [q, k, v, z] = linears(x, q_, k_, v_, gate_);
  in.q = split_heads(q, H);
  in.k = split_heads(k, H);
  in.v = split_heads(v, H);
  position_.rotate(x, in.q, in.k, pass);
  const at::Tensor h = at::arange(H, wide(x).options());
  const at::Tensor a = 1 - at::pow(2.0, -5 - h);  // a_h = 1 - 2^{-5-h}
  in.g = a.log().expand({x.size(0), x.size(1), H});
  horner::Options options;
  options.scale = 1 / std::sqrt(double(in.q.size(3)));
  return out_(norm_.gated(pass.run("linear", in, options).o, z, Gate::silu));
}

std::string RetNet::equation(std::string_view listed) const {
  return fmt::format("{}, y_t = silu(x_t W_g) * {}(o_t)", listed, o_.norm);
}

}  // namespace horner
