#include "mixers/mamba2.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/precision.h"

namespace horner {

Mamba2::Mamba2(int64_t D, const Options& o)
    : Mixer("mamba2", D), o_(o), E_(o.expand * D), H_(E_ / std::max<int64_t>(o.head, 1)) {
  check_at_least(name(), "state", double(o.state), 1);
  check_at_least(name(), "expand", double(o.expand), 1);
  check_at_least(name(), "conv", double(o.conv), 0);
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
  step_bias_ =
      register_parameter("step_bias", inverse_softplus_of_steps(H_, o.step_low, o.step_high));
  A_log_ = register_parameter("A_log", uniform({H_}, 1, 16).log());
  if (o.skip) skip_ = register_parameter("skip", at::ones({H_}));
  norm_ = head_norm(*this, "norm", "rms", 1e-5, {E_});
}

at::Tensor Mamba2::mix(const at::Tensor& x, Pass& pass) {
  const int64_t N = o_.groups * o_.state, each = H_ / o_.groups;
  const auto parts = in_(x).split_with_sizes({E_, E_ + 2 * N, H_}, -1);
  const at::Tensor& z = parts[0];
  const auto xBC = conv_(parts[1], pass).split_with_sizes({E_, N, N}, -1);
  const at::Tensor dt = at::softplus(wide(parts[2]) + step_bias_);  // (B,T,H)
  Inputs in;
  const at::Tensor u = wide(split_heads(xBC[0], H_));
  in.v = (u * dt.unsqueeze(-1)).to(xBC[0].scalar_type());  // dt_t x'_t
  in.k = split_heads(xBC[1], o_.groups).repeat_interleave(each, 2);
  in.q = split_heads(xBC[2], o_.groups).repeat_interleave(each, 2);
  in.g = -wide(A_log_).exp() * dt;  // log a = -A dt
  at::Tensor o = pass.run("linear", in).o;
  if (skip_.defined()) o = pass.add_skip(o, skip_.unsqueeze(-1) * u, skip_ / dt);  // + D x'
  return out_(norm_(join_heads(o).to(z.scalar_type()) * at::silu(z)));
}

}  // namespace horner
