#include "mixers/mamba2.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"
#include "nn/fused/fused.h"
#include "nn/fused/gates.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/parameter.h"
#include "nn/part.h"
#include "nn/precision.h"

namespace horner {

Mamba2::Mamba2(int64_t D, const Options& o)
    : Mixer("mamba2", D),
      o_(o),
      E_(o.expand * D),
      H_(o.block == "bare" ? 1 : E_ / std::max<int64_t>(o.head, 1)) {
  check_at_least(name(), "state", double(o.state), 1);
  check_at_least(name(), "expand", double(o.expand), 1);
  check_at_least(name(), "conv", double(o.conv), 0);
  if (o.block == "bare") {
    HORNER_CHECK(o.expand == 1, "[mamba2] block = bare reads x itself: expand must be 1");
    in_ = linear(*this, "in", D, 2 * o.state + 1);
    out_ = linear(*this, "out", D, D);
    step_bias_ = parameter(*this, "step_bias", [&] { return at::zeros({1}); });
    A_log_ = parameter(*this, "A_log", [&] { return at::zeros({1}); });
    if (o.skip) skip_ = parameter(*this, "skip", [&] { return at::ones({1}); });
    return;
  }
  HORNER_CHECK(
      o.head >= 1 && E_ % o.head == 0, "[mamba2] head must divide expand D = {}, got {}", E_, o.head
  );
  HORNER_CHECK(
      o.groups >= 1 && H_ % o.groups == 0,
      "[mamba2] groups must divide the {} heads, got {}",
      H_,
      o.groups
  );
  HORNER_CHECK(
      o.step_low > 0 && o.step_low <= o.step_high && o.step_high < 1e3,
      "[mamba2] 0 < step_low <= step_high must hold, got {} and {}",
      o.step_low,
      o.step_high
  );
  const int64_t BC = 2 * o.groups * o.state;
  in_ = linear(*this, "in", D, 2 * E_ + BC + H_);
  out_ = linear(*this, "out", E_, D);
  conv_ = short_conv(*this, "conv", E_ + BC, {o.conv, "silu", true});
  step_bias_ = parameter(*this, "step_bias", [&] {
    return inverse_softplus_of_steps(H_, o.step_low, o.step_high);
  });
  A_log_ = parameter(*this, "A_log", [&] { return uniform({H_}, 1, 16).log(); });
  if (o.skip) skip_ = parameter(*this, "skip", [&] { return at::ones({H_}); });
  norm_ = head_norm(*this, "norm", "rms", 1e-5, {E_});
}

at::Tensor Mamba2::mix_bare(const at::Tensor& x, Pass& pass) const {
  const auto parts = in_(x).split_with_sizes({o_.state, o_.state, 1}, -1);
  const at::Tensor dt = at::softplus(wide(parts[2]) + step_bias_);  // (B,T,1)
  Inputs in;
  in.v = (wide(x) * dt).to(x.scalar_type()).unsqueeze(2);  // dt_t x_t   (B,T,1,D)
  in.k = parts[0].unsqueeze(2);
  in.q = parts[1].unsqueeze(2);
  in.g = -wide(A_log_).exp() * dt;
  at::Tensor o = pass.run("linear", in).o;
  if (skip_.defined()) o = pass.add_skip(o, (skip_ * wide(x)).unsqueeze(2), skip_ / dt);
  return out_(join_heads(o).to(x.scalar_type()));
}

at::Tensor Mamba2::mix(const at::Tensor& x, Pass& pass) {
  if (o_.block == "bare") return mix_bare(x, pass);
  const int64_t N = o_.groups * o_.state, each = H_ / o_.groups;
  const auto parts = in_(x).split_with_sizes({E_, E_, N, N, H_}, -1);
  const at::Tensor& z = parts[0];
  const auto xBC = conv_({{parts[1]}, {parts[2]}, {parts[3]}}, pass);
  const at::Tensor dt = at::softplus(wide(parts[4]) + step_bias_);  // (B,T,H)
  Inputs in;
  const at::Tensor u = split_heads(xBC[0], H_);
  in.v = scale_heads(u, dt);                         // dt_t x'_t
  const auto for_heads = [&](const at::Tensor& y) {  // one group is not copied
    const at::Tensor groups = split_heads(y, o_.groups);
    return o_.groups == 1 ? groups.expand({-1, -1, H_, -1}) : groups.repeat_interleave(each, 2);
  };
  in.k = for_heads(xBC[1]);
  in.q = for_heads(xBC[2]);
  in.g = -bounded_exp(wide(A_log_)) * dt;  // log a = -A dt
  at::Tensor o = pass.run("linear", in).o;
  if (!pass.wants_core() && o.scalar_type() == z.scalar_type() &&
      norm_fusable(z, norm_.weight, join_heads(o))) {
    const Part part(parts::kNorms);
    const int64_t P = E_ / H_;
    const at::Tensor D =
        skip_.defined() ? wide(skip_).unsqueeze(-1).expand({H_, P}).flatten() : skip_;
    const at::Tensor v = skip_.defined() ? xBC[0] : at::Tensor();
    return out_(fused_skip_norm(join_heads(o), v, D, z, norm_.weight, norm_.eps));
  }
  if (skip_.defined()) o = pass.add_skip(o, skip_.unsqueeze(-1) * wide(u), skip_ / dt);  // + D x'
  return out_(norm_(join_heads(o).to(z.scalar_type()) * at::silu(z)));
}

std::string Mamba2::equation(std::string_view listed) const {
  if (o_.skip) return std::string(listed);
  return "S_t = e^{-A dt_t} S_{t-1} + dt_t B_t^T x_t, y_t = C_t S_t";
}

}  // namespace horner
