#include "mixers/inline_attention.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/inline_sums/inline_sums.h"
#include "nn/linears.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {
namespace {

at::Tensor feature(std::string_view kind, const at::Tensor& x) {
  if (kind == "relu") return x.relu();
  if (kind == "leaky_relu") return at::leaky_relu(x);
  return kind == "exp" ? (0.2 * x).exp() : x;
}

// The values on a square of side r around every token of an image.   (B,T,H,K) -> (B,T,H,r r,K)
at::Tensor squares(const at::Tensor& v, int64_t columns, int64_t r) {
  HORNER_CHECK(
      v.size(1) % columns == 0,
      "[inline] an image has rows of {} tokens, got {} tokens",
      columns,
      v.size(1)
  );
  const int64_t rows = v.size(1) / columns, edge = r / 2;
  const at::Tensor image = v.unflatten(1, {rows, columns});
  const at::Tensor padded = at::constant_pad_nd(image, {0, 0, 0, 0, edge, edge, edge, edge});
  std::vector<at::Tensor> shifted;
  for (int64_t y = 0; y < r; ++y) {
    for (int64_t x = 0; x < r; ++x)
      shifted.push_back(padded.narrow(1, y, rows).narrow(2, x, columns).flatten(1, 2));
  }
  return at::stack(shifted, 3);
}

}  // namespace

InlineAttention::InlineAttention(int64_t D, const Options& o)
    : Mixer("inline", D), o_(o), taps_(o.columns > 0 ? o.residual * o.residual : o.residual) {
  check_heads(name(), D, o.heads);
  check_at_least(name(), "residual", double(o.residual), 0);
  check_at_least(name(), "columns", double(o.columns), 0);
  HORNER_CHECK(
      o.columns == 0 || !o.causal, "[inline] columns: an image is read in both directions"
  );
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
  hidden_weight_ = parameter(*this, "hidden_weight", [&] {
    return uniform({H, K, K}, -bound, bound);
  });
  hidden_bias_ = parameter(*this, "hidden_bias", [&] { return uniform({H, K}, -bound, bound); });
  tap_weight_ = parameter(*this, "tap_weight", [&] {
    return uniform({H, K, taps_ * K}, -bound, bound);
  });
  tap_bias_ = parameter(*this, "tap_bias", [&] { return uniform({H, taps_ * K}, -bound, bound); });
}

// The first token's y, or the mean in both directions, which is taken from every token: the weights
// do not depend on a shift of the keys and sum to 1, and so an offset does not cancel in fp32.
at::Tensor InlineAttention::origin(const at::Tensor& y, Pass& pass) const {
  if (!o_.causal) return pass.each(y.detach(), [](const at::Tensor& z) { return z.mean(1, true); });
  return pass.over_time(y.detach(), [](const at::Tensor& z, at::Tensor& first) {
    if (!first.defined()) first = z.narrow(1, 0, std::min<int64_t>(z.size(1), 1)).sum(1);
    return first.unsqueeze(1).expand_as(z);
  });
}

// sum_j rk_tj v_{t-j}, rk from the mean of what was seen.   x (B,T,D), v (B,T,H,K), n (B,T)
at::Tensor InlineAttention::residual(
    const at::Tensor& x, const at::Tensor& v, const at::Tensor& n, Pass& pass
) const {
  const int64_t taps = o_.residual, ahead = o_.causal ? 0 : taps / 2;
  const at::Tensor mean =
      o_.causal ? pass.running_sum(wide(x)) / n.unsqueeze(-1)
                : pass.each(wide(x), [](const at::Tensor& y) { return y.mean(1, true); });
  const auto grouped = [](const at::Tensor& y, const at::Tensor& W, const at::Tensor& b) {
    return at::einsum("bthi,hij->bthj", {y, W.to(y.scalar_type())}) + b;
  };
  const at::Tensor hidden =
      at::gelu(grouped(split_heads(mean, o_.heads), hidden_weight_, hidden_bias_));
  const at::Tensor rk =
      grouped(hidden, tap_weight_, tap_bias_).unflatten(-1, {taps_, -1});  // (B,T|1,H,taps,K)
  const auto near = [&](const at::Tensor& y, at::Tensor& tail) {  // v_t .. v_{t-taps+1}, from ahead
    const int64_t T = y.size(1);
    if (!tail.defined()) tail = at::zeros_like(y.sum(1, true)).repeat({1, taps - 1 - ahead, 1, 1});
    const at::Tensor all = at::constant_pad_nd(at::cat({tail, y}, 1), {0, 0, 0, 0, 0, ahead});
    tail = all.narrow(1, T, taps - 1 - ahead);
    std::vector<at::Tensor> shifted;
    for (int64_t j = 0; j < taps; ++j) shifted.push_back(all.narrow(1, taps - 1 - j, T));
    return at::stack(shifted, 3);
  };
  const at::Tensor window =
      o_.causal ? pass.over_time(v, near) : pass.each(v, [&](const at::Tensor& y) {
        at::Tensor none;
        return o_.columns > 0 ? squares(y, o_.columns, taps) : near(y, none);
      });
  return (rk * window).sum(3);  // (B,T,H,taps,K) -> (B,T,H,K)
}

// The same on a GPU in bf16, where no state is wanted.   q, k, v (B,T,H,K)
at::Tensor InlineAttention::fused(
    const at::Tensor& x, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Pass& pass
) const {
  const auto mapped = [&](const at::Tensor& y) {
    return o_.feature == "identity" ? y : feature(o_.feature, wide(y)).to(y.scalar_type());
  };
  const InlineWeighted w = inline_weights(mapped(q), mapped(k), v);
  Inputs in;
  in.q = w.qh;
  in.k = w.k;
  in.v = w.v;
  const at::Tensor read = pass.run("linear", in).o;
  at::Tensor rk, bias;
  if (o_.residual > 0) {
    rk = inline_taps(x, {hidden_weight_, hidden_bias_, tap_weight_});
    bias = tap_bias_;
  }
  return inline_output(read, v, w, rk, bias);
}

at::Tensor InlineAttention::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads;
  const auto [qx, kx, vx] = linears(x, q_, k_, v_);
  const at::Tensor q0 = split_heads(qx, H), own = split_heads(kx, H), given = split_heads(vx, H);
  if (o_.causal && pass.fresh() && pass.starts().empty() && !pass.wants_core() &&
      !pass.context().keep_state && inline_fuses(q0, own, given, o_.residual))
    return out_(join_heads(fused(x, q0, own, given, pass)));
  const at::Tensor q = feature(o_.feature, wide(q0));
  at::Tensor k = feature(o_.feature, wide(own));
  const at::Tensor v = wide(given);
  const at::Tensor k0 = origin(k, pass), v0 = origin(v, pass);
  k = k - k0;
  Inputs in;
  in.v = v - v0;
  const at::Tensor n =
      (o_.causal ? pass.position(x) + 1 : pass.length(x)).to(q.scalar_type());  // (B,T|1)
  const at::Tensor z = o_.causal ? pass.running_sum(k)
                                 : pass.each(k, [](const at::Tensor& y) { return y.sum(1, true); });
  const at::Tensor each = n.unsqueeze(-1).unsqueeze(-1);
  const at::Tensor qh = q / (each * std::sqrt(double(q.size(3))));
  const at::Tensor c = (1 - (qh * z).sum(-1, true)) / each;  // (1 - qh.z) / n
  in.q = at::cat({qh, c}, -1);
  in.k = at::constant_pad_nd(k, {0, 1}, 1.0);
  horner::Options options;
  options.causal = o_.causal;
  const at::Tensor local = o_.residual > 0 ? residual(x, v, n, pass) : at::Tensor();
  at::Tensor o = pass.run("linear", in, options).o + v0;
  pass.core.in.v = v;  // the weights sum to 1: on v they give o
  pass.core.o = o;
  if (local.defined()) o = o + local;
  return out_(join_heads(o));
}

}  // namespace horner
