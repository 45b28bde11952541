#include "mixers/inline_attention.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"

namespace horner {
namespace {

at::Tensor feature(std::string_view kind, const at::Tensor& x) {
  if (kind == "relu") return x.relu();
  if (kind == "leaky_relu") return at::leaky_relu(x);
  return kind == "exp" ? (0.2 * x).exp() : x;
}

}  // namespace

InlineAttention::InlineAttention(int64_t D, const Options& o) : Mixer("inline", D), o_(o) {
  check_heads(name(), D, o.heads);
  check_at_least(name(), "residual", double(o.residual), 0);
  HORNER_CHECK(
      o.causal || o.residual == 0 || o.residual % 2 == 1,
      "[inline] in both directions the residual has a middle: its taps must be odd, got {}",
      o.residual
  );
  const int64_t H = o.heads, K = D / H;
  q_ = linear(*this, "q", D, D, true);
  k_ = linear(*this, "k", D, D, true);
  v_ = linear(*this, "v", D, D, true);
  out_ = linear(*this, "out", D, D, true);
  if (o.residual == 0) return;
  const double bound = 1 / std::sqrt(double(K));
  hidden_weight_ = register_parameter("hidden_weight", uniform({H, K, K}, -bound, bound));
  hidden_bias_ = register_parameter("hidden_bias", uniform({H, K}, -bound, bound));
  tap_weight_ = register_parameter("tap_weight", uniform({H, K, o.residual * K}, -bound, bound));
  tap_bias_ = register_parameter("tap_bias", uniform({H, o.residual * K}, -bound, bound));
}

// sum_j rk_tj v_{t-j}, rk from the mean of what was seen.   x (B,T,D), v (B,T,H,K), n (B,T)
at::Tensor InlineAttention::residual(
    const at::Tensor& x, const at::Tensor& v, const at::Tensor& n, Pass& pass
) const {
  const int64_t T = x.size(1), taps = o_.residual, ahead = o_.causal ? 0 : taps / 2;
  const at::Tensor mean =
      o_.causal ? pass.running_sum(wide(x)) / n.unsqueeze(-1) : wide(x).mean(1, true);
  const auto grouped = [](const at::Tensor& y, const at::Tensor& W, const at::Tensor& b) {
    return at::einsum("bthi,hij->bthj", {y, W.to(y.scalar_type())}) + b;
  };
  const at::Tensor hidden =
      at::gelu(grouped(split_heads(mean, o_.heads), hidden_weight_, hidden_bias_));
  const at::Tensor rk =
      grouped(hidden, tap_weight_, tap_bias_).unflatten(-1, {taps, -1});  // (B,T|1,H,taps,K)
  at::Tensor tail = o_.causal ? pass.carried() : at::Tensor();
  if (!tail.defined())
    tail = at::zeros({x.size(0), taps - 1 - ahead, v.size(2), v.size(3)}, v.options());
  const at::Tensor all = at::constant_pad_nd(at::cat({tail, v}, 1), {0, 0, 0, 0, 0, ahead});
  if (o_.causal) pass.carry(all.narrow(1, T, taps - 1));
  at::Tensor sum = at::zeros_like(v);
  for (int64_t j = 0; j < taps; ++j) sum = sum + rk.select(3, j) * all.narrow(1, taps - 1 - j, T);
  return sum;
}

at::Tensor InlineAttention::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads, T = x.size(1);
  const at::Tensor q = feature(o_.feature, wide(split_heads(q_(x), H)));
  const at::Tensor k = feature(o_.feature, wide(split_heads(k_(x), H)));
  Inputs in;
  in.v = wide(split_heads(v_(x), H));
  at::Tensor n = at::full({x.size(0), T}, double(T), q.options());  // (B,T)
  at::Tensor z = k.sum(1, true);
  if (o_.causal) {
    n = (pass.position(x).unsqueeze(1) + at::arange(1, T + 1, x.device())).to(q.scalar_type());
    z = pass.running_sum(k);
  }
  const at::Tensor each = n.unsqueeze(-1).unsqueeze(-1);
  const at::Tensor qh = q / (each * std::sqrt(double(q.size(3))));
  const at::Tensor c = (1 - (qh * z).sum(-1, true)) / each;  // (1 - qh.z) / n
  in.q = at::cat({qh, c}, -1);
  in.k = at::constant_pad_nd(k, {0, 1}, 1.0);
  horner::Options options;
  options.causal = o_.causal;
  const at::Tensor local = o_.residual > 0 ? residual(x, in.v, n, pass) : at::Tensor();
  at::Tensor o = pass.run("linear", in, options).o;
  if (local.defined()) o = o + local;
  return out_(join_heads(o));
}

}  // namespace horner
