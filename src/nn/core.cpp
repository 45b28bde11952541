#include "nn/core.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"

namespace horner {
namespace {

// Every input with the H heads of the queries, and the options of a plain call.
Core with_all_heads(Core core) {
  core.options.form = forms::kAuto;
  core.options.final_state = false;
  core.options.log_norm = false;
  if (!core.op->grouped()) return core;
  const int64_t r = core.in.q.size(2) / core.in.v.size(2);
  for (const Input& input : core.op->inputs) {
    at::Tensor& x = core.in.*input.tensor;
    if (x.defined() && input.tensor != &Inputs::q) x = x.repeat_interleave(r, 2);
  }
  return core;
}

}  // namespace

System system_of(const Core& given) {
  if (given.system) return *given.system;
  HORNER_CHECK(given.options.causal, "[{}] both directions are not a recurrence", given.name());
  const Core core = with_all_heads(given);
  const Recurrence r = core.op->recurrence(core.in, core.options);
  System s{r.Lambda, r.B, r.C, core.skip, r.u};
  if (!s.D.defined()) s.D = at::zeros_like(r.u.select(3, 0));
  at::Tensor eta = r.eta;
  if (core.eta.defined()) eta = eta.defined() ? eta * core.eta : core.eta;
  if (!eta.defined()) return s;
  eta = eta.unsqueeze(-1);  // (B,T,H,1)
  const at::Tensor before = at::cat({eta.narrow(1, 0, 1), eta.narrow(1, 0, eta.size(1) - 1)}, 1);
  s.Lambda = s.Lambda * (before / eta);
  s.B = s.B / eta;
  return s;
}

at::Tensor rebuild(const System& s) {
  const int64_t F = s.C.size(3);
  at::Tensor h = at::zeros({s.u.size(0), s.u.size(2), F, s.u.size(3)}, s.u.options());
  std::vector<at::Tensor> y;
  for (int64_t t = 0; t < s.u.size(1); ++t) {
    const at::Tensor Lambda = s.Lambda.select(1, t), u = s.u.select(1, t).unsqueeze(-2);
    h = Lambda.dim() == 4 ? at::matmul(Lambda, h) : Lambda.unsqueeze(-1) * h;
    h = h + s.B.select(1, t).unsqueeze(-1) * u;  // h_t = Lambda_t h_{t-1} + B_t u_t
    const at::Tensor read = at::matmul(s.C.select(1, t).unsqueeze(-2), h);
    y.push_back((read + s.D.select(1, t).unsqueeze(-1).unsqueeze(-1) * u).squeeze(-2));
  }
  return at::stack(y, 1);
}

at::Tensor map_of(const Core& given) {
  if (given.system || !given.op->grouped()) {
    System s = system_of(given);
    const int64_t T = s.u.size(1);
    const at::Tensor one_hot = at::eye(T, s.u.options()).view({1, T, 1, T});
    s.u = one_hot.expand({s.u.size(0), T, s.u.size(2), T});
    return rebuild(s).permute({0, 2, 1, 3});
  }
  const Core core = with_all_heads(given);
  const int64_t T = core.in.v.size(1);
  const at::Tensor one_hot = at::eye(T, core.in.v.options()).view({1, T, 1, T});
  Inputs in = core.in;
  in.v = one_hot.expand({in.v.size(0), T, in.v.size(2), T}).contiguous();
  at::Tensor o = run(*core.op, in, {}, core.options).o;  // (B,T,H,T): linear in v
  if (core.eta.defined()) o = o / core.eta.unsqueeze(-1);
  if (core.skip.defined()) o = o + core.skip.unsqueeze(-1) * one_hot;
  return o.permute({0, 2, 1, 3});
}

}  // namespace horner
