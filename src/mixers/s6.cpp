#include "mixers/s6.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/fused/gates.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/parameter.h"
#include "nn/precision.h"
#include "nn/selective_scan.h"

namespace horner {

S6::S6(int64_t D, const Options& o)
    : Mixer("s6", D),
      o_(o),
      E_(o.expand * D),
      R_(o.block == "ssd" ? 1
         : o.rank > 0     ? o.rank
                          : (D + 15) / 16) {
  check_at_least(name(), "state", double(o.state), 1);
  check_at_least(name(), "expand", double(o.expand), 1);
  check_at_least(name(), "rank", double(o.rank), 0);
  check_at_least(name(), "conv", double(o.conv), 0);
  const bool mamba = o.block == "mamba", ssd = o.block == "ssd";
  HORNER_CHECK(mamba || o.expand == 1, "[s6] block = {} reads x itself: expand must be 1", o.block);
  if (mamba) in_ = linear(*this, "in", D, 2 * E_);
  conv_ = short_conv(*this, "conv", E_, {mamba ? o.conv : 0, "silu", true});
  x_ = linear(*this, "x", E_, R_ + 2 * o.state);
  const double bound = 1 / std::sqrt(double(R_));
  if (ssd) {
    step_.bias = parameter(*this, "step_bias", [&] { return at::zeros({E_}); });
    A_log_ = parameter(*this, "A_log", [] { return at::zeros({1, 1}); });
  } else {
    step_ =
        linear(*this, "step", mamba ? uniform({E_, R_}, -bound, bound) : normal({E_, R_}), true);
    if (mamba) start_at(step_.bias, [&] { return inverse_softplus_of_steps(E_); });
    A_log_ = parameter(*this, "A_log", [&] {
      return at::arange(1, o.state + 1, at::kFloat).log().repeat({E_, 1});
    });
  }
  skip_ = parameter(*this, "skip", [&] { return at::ones({E_}); });
  out_ = linear(*this, "out", E_, D);
}

at::Tensor S6::mix(const at::Tensor& x, Pass& pass) {
  const bool mamba = o_.block == "mamba";
  const auto halves = mamba ? in_(x).split(E_, -1) : std::vector<at::Tensor>{x};
  at::Tensor u = halves[0];
  if (mamba) u = conv_.weight.defined() ? conv_(u, pass) : at::silu(u);
  const auto parts = x_(u).split_with_sizes({R_, o_.state, o_.state}, -1);
  const at::Tensor step = o_.block == "ssd" ? wide(parts[0]) + step_.bias : step_(parts[0]);
  const at::Tensor A = -bounded_exp(wide(A_log_)).expand({E_, o_.state}).contiguous();  // (E,N)
  const bool through_state = pass.context().keep_state && at::GradMode::is_enabled();
  const bool whole = pass.fresh() && pass.starts().empty() && !pass.wants_core() && !through_state;
  const auto scan = [&](const Selective& x) {
    return pass.over_time(u, [&](const at::Tensor&, at::Tensor& h) {
      const Scanned all = selective_scan(x);
      h = all.last;
      return all.y;
    });
  };
  Selective in_kernel{u, step, A, parts[1], parts[2]};
  if (mamba) {
    in_kernel.z = halves[1];
    in_kernel.D = wide(skip_);
    if (whole && can_scan(in_kernel)) return out_(scan(in_kernel));
  }
  const at::Tensor dt = decay(step, {.scale = -1});  // softplus, (B,T,E)
  in_kernel = {u, dt, A, parts[1], parts[2]};
  if (whole && can_scan(in_kernel)) {
    const at::Tensor o = (scan(in_kernel) + skip_ * wide(u)).to(u.scalar_type());
    return out_(mamba ? o * at::silu(halves[1]) : o);
  }
  const at::Tensor B = wide(parts[1]).unsqueeze(2), C = wide(parts[2]).unsqueeze(2);  // (B,T,1,N)
  const at::Tensor v = dt * wide(u);
  Inputs in;
  in.v = v.unsqueeze(-1) * B;                                       // dt_t u_t B_t   (B,T,E,N)
  in.g = A * dt.unsqueeze(-1);                                      // A dt_t
  const at::Tensor y = (pass.run("scan", in).o * C).sum(-1, true);  // C_t h_t        (B,T,E,1)
  Inputs same;
  same.q = C.expand_as(in.g);
  same.k = B.expand_as(in.g);
  same.v = v.unsqueeze(-1);
  same.g = in.g;
  pass.core = {&find_op("linear"), same, {}, {}, {}, y, {}};
  const at::Tensor Du = (skip_ * wide(u)).unsqueeze(-1);
  const at::Tensor o = pass.add_skip(y, Du, skip_ / dt).squeeze(-1).to(u.scalar_type());
  return out_(mamba ? o * at::silu(halves[1]) : o);
}

}  // namespace horner
