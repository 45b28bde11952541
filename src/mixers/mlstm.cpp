#include "mixers/mlstm.h"

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

Mlstm::Mlstm(int64_t D, const Options& o) : Mixer("mlstm", D), o_(o) {
  const int64_t H = o.heads, K = head_width(name(), "expand_k", D, H, o.expand_k);
  const int64_t V = head_width(name(), "expand_v", D, H, o.expand_v);
  check_at_least(name(), "layers", double(o.layers), 1);
  HORNER_CHECK(o.cap > 0 && std::isfinite(o.cap), "[mlstm] cap must be above 0, got {}", o.cap);
  HORNER_CHECK(
      std::isfinite(o.input_bias), "[mlstm] input_bias must be finite, got {}", o.input_bias
  );
  const double small = std::sqrt(2.0 / (5.0 * double(D)));
  q_ = linear(*this, "q", normal({H * K, D}, small));
  k_ = linear(*this, "k", normal({H * K, D}, small));
  v_ = linear(*this, "v", normal({H * V, D}, small));
  output_gate_ = linear(*this, "output_gate", normal({H * V, D}, small));
  input_gate_ = linear(*this, "input_gate", at::zeros({H, D}), true);
  start_at(input_gate_.bias, [&] { return at::full({H}, o.input_bias, at::kFloat); });
  forget_gate_ = linear(*this, "forget_gate", at::zeros({H, D}), true);
  start_at(forget_gate_.bias, [&] { return at::linspace(3, 6, H, at::kFloat); });
  out_ = linear(*this, "out", normal({D, H * V}, 2 / (double(o.layers) * std::sqrt(double(D)))));
  norm_ = head_norm(*this, "norm", "layer", 1e-6, {H, V});
}

at::Tensor Mlstm::mix(const at::Tensor& x, Pass& pass) {
  const int64_t H = o_.heads;
  const auto capped = [&](const at::Tensor& y) { return o_.cap * (wide(y) / o_.cap).tanh(); };
  const auto [q, k, v, in_gate, forget_gate, z] =
      linears(x, q_, k_, v_, input_gate_, forget_gate_, output_gate_);
  const at::Tensor i = capped(in_gate), f = at::log_sigmoid(capped(forget_gate));  // (B,T,H)
  Inputs in;
  in.q = split_heads(q, H);
  in.k = split_heads(k, H);
  in.v = split_heads(v, H);
  horner::Options options;
  options.scale = 1 / std::sqrt(double(in.q.size(3)));
  at::Tensor h;
  if (o_.input_gate == "exponential") {
    h = pass.run_gated(in, i, f, options).o;
  } else {
    in.k = wide(in.k) * i.sigmoid().unsqueeze(-1);
    in.v = at::constant_pad_nd(wide(in.v), {0, 1}, 1.0);  // [v_t, 1]
    in.g = f;
    const at::Tensor both = pass.run("linear", in, options).o;
    const int64_t V = both.size(3) - 1;
    pass.core.in.v = in.v.narrow(3, 0, V);
    h = pass.divide(
        both.narrow(3, 0, V), both.select(3, V).abs().clamp_min(1)
    );  // q C / max(|q n|, 1)
  }
  return out_(norm_.gated(h, z, Gate::sigmoid));
}

std::string Mlstm::equation(std::string_view listed) const {
  if (o_.input_gate == "exponential") return std::string(listed);
  return "C_t = f_t C_{t-1} + sigmoid(i_t) k_t^T v_t, h_t = q_t C_t / max(|q_t n_t|, 1)";
}

}  // namespace horner
