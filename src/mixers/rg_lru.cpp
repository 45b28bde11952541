#include "mixers/rg_lru.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"
#include "nn/fused/pointwise.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {

RgLru::RgLru(int64_t D, const Options& o) : Mixer("rg_lru", D), o_(o) {
  const int64_t H = o.heads, each = head_width(name(), "expand", D, H, o.expand), E = H * each;
  check_at_least(name(), "conv", double(o.conv), 0);
  HORNER_CHECK(
      o.power > 0 && std::isfinite(o.power), "[rg_lru] power must be above 0, got {}", o.power
  );
  gate_ = linear(*this, "gate", D, E, true);
  in_ = linear(*this, "in", D, E, true);
  out_ = linear(*this, "out", E, D, true);
  conv_ = short_conv(*this, "conv", E, {o.conv, "none", true});
  recurrence_weight_ = parameter(*this, "recurrence_weight", [&] {
    return normal({H, each, each});
  });
  recurrence_bias_ = parameter(*this, "recurrence_bias", [&] { return at::zeros({H, each}); });
  input_weight_ = parameter(*this, "input_weight", [&] { return normal({H, each, each}); });
  input_bias_ = parameter(*this, "input_bias", [&] { return at::zeros({H, each}); });
  Lambda_ = parameter(*this, "Lambda", [&] {
    const at::Tensor softplus =
        -uniform({H, each}, 0.9, 0.999).log() / o.power;  // e^{-c softplus} in [0.9, 0.999]
    return softplus.expm1().log();
  });
}

at::Tensor RgLru::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads;
  const at::Tensor first = pass.position(x) == 0;  // (B,T)
  const at::Tensor z = gate_(x);
  const at::Tensor u = split_heads(conv_(in_(x), pass), H);  // (B,T,H,E/H)
  const auto blocks = [&](const at::Tensor& weight) {
    return at::einsum("bthi,hij->bthj", {u, weight.to(u.scalar_type())});
  };
  const at::Tensor r = blocks(recurrence_weight_), i = blocks(input_weight_);
  const at::Tensor c = o_.power * at::softplus(wide(Lambda_));
  Inputs in;
  const std::vector<at::Tensor> rows = {join_heads(r), join_heads(i), join_heads(u)},
                                columns = {
                                    recurrence_bias_.flatten(), input_bias_.flatten(), c.flatten()};
  if (pointwise_fuses(Pointwise::rg_lru_gates, rows, columns)) {
    const at::Tensor starts = first.to(at::kFloat).expand({x.size(0), x.size(1)});
    const auto gates = pointwise(Pointwise::rg_lru_gates, rows, columns, starts);
    in.g = split_heads(gates[0], H);
    in.v = split_heads(gates[1], H);
  } else {
    in.g = -wide(r + recurrence_bias_).sigmoid() * c;  // log a_t
    const at::Tensor square = -(2 * in.g).expm1();     // 1 - a^2
    const at::Tensor forgets = square > 0;             // at a = 1 the root has no derivative
    at::Tensor gamma = at::where(forgets, at::where(forgets, square, 1.0).sqrt(), 0.0);
    gamma = at::where(first.unsqueeze(-1).unsqueeze(-1), 1.0, gamma);
    in.v = gamma * wide(i + input_bias_).sigmoid() * wide(u);
  }
  const at::Tensor h = join_heads(pass.run("scan", in).o);
  if (pointwise_fuses(Pointwise::gelu_gate, {h, z}, {}))
    return out_(pointwise(Pointwise::gelu_gate, {h, z})[0]);
  return out_(h.to(z.scalar_type()) * at::gelu(z, "tanh"));
}

}  // namespace horner
