#include "mixers/conv.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/parameter.h"

namespace horner {

Conv::Conv(int64_t D, const Options& o) : Mixer("conv", D), o_(o) {
  check_at_least(name(), "kernel", double(o.kernel), 2);
  if (o.kind == "dense") {
    const double wide = 1 / std::sqrt(double(o.kernel * D));
    dense_ = linear(*this, "dense", uniform({D, o.kernel * D}, -wide, wide), true);
    return;
  }
  const double bound = 1 / std::sqrt(double(o.kernel));
  gate_ = linear(*this, "gate", D, D, true);
  filter_ = short_conv(*this, "filter", D, {o.kernel, "none", false});
  offset_ = parameter(*this, "offset", [&] { return uniform({D}, -bound, bound); });
}

at::Tensor Conv::windows(const at::Tensor& x, Pass& pass) const {
  return pass.over_time(x, [&](const at::Tensor& y, at::Tensor& tail) {
    const int64_t B = y.size(0), T = y.size(1), D = y.size(2), past = o_.kernel - 1;
    const at::Tensor before = tail.defined() ? tail : at::zeros({B, past, D}, y.options());
    const at::Tensor all = at::cat({before, y}, 1);  // (B,past+T,D)
    tail = all.narrow(1, T, past).clone();
    std::vector<at::Tensor> places;  // a sequence of a packed batch may be empty: no unfold
    for (int64_t j = 0; j <= past; ++j) places.push_back(all.narrow(1, j, T));
    return at::cat(places, 2);
  });
}

at::Tensor Conv::mix(const at::Tensor& x, Pass& pass) {
  if (o_.kind == "dense") {
    const at::Tensor y = dense_(windows(x, pass));
    if (pass.wants_core()) set_core(pass.core, shared_register(x), y - dense_.bias);
    return y;
  }
  const at::Tensor gate = gate_(x);          // x_t W + b1
  const at::Tensor read = filter_(x, pass);  // sum_j h_j x_{t-j}
  if (pass.wants_core()) {
    const at::Tensor o = gate * read + (o_.residual ? x : at::zeros_like(x));
    set_core(pass.core, shift_register(x, gate), o);
  }
  const at::Tensor y = gate * (read + offset_);
  return o_.residual ? y + x : y;
}

void Conv::set_core(Core& core, const System& system, const at::Tensor& o) {
  core.system = system;
  core.in.v = system.u;
  core.o = o.unsqueeze(-1);
}

System Conv::shift_register(const at::Tensor& x, const at::Tensor& gate) const {
  const int64_t B = x.size(0), T = x.size(1), D = x.size(2), F = o_.kernel;
  const at::Tensor I = at::eye(F, x.options());
  System s;
  s.u = x.unsqueeze(-1);
  s.Lambda = I.roll(1, 0).tril(-1).expand({B, T, D, F, F});  // slot j takes slot j - 1
  s.B = I.select(0, 0).expand({B, T, D, F});                 // slot 0 takes the input
  s.C = gate.unsqueeze(-1) * filter_.weight.flip(1);         // weight ends with the current token
  s.D = o_.residual ? at::ones_like(x) : at::zeros_like(x);
  return s;
}

System Conv::shared_register(const at::Tensor& x) const {
  const int64_t B = x.size(0), T = x.size(1), D = x.size(2), F = o_.kernel * D;
  const at::Tensor I = at::eye(F, x.options());
  System s;
  s.u = at::ones({B, T, D, 1}, x.options());
  s.Lambda =
      I.roll(-D, 0).triu(1).expand({B, T, D, F, F});  // a token moves to the next older place
  s.B = at::cat({at::zeros({B, T, F - D}, x.options()), x}, 2).unsqueeze(2).expand({B, T, D, F});
  s.C = dense_.weight.expand({B, T, D, F});
  s.D = at::zeros_like(x);
  return s;
}

}  // namespace horner
