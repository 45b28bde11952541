#include "nn/core.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "ops/power/power.h"

namespace horner {
namespace {

// A scan is `linear` with one head per channel and q = k = 1.
Core as_linear(const Core& core) {
  if (core.name() != "scan") return core;
  const at::Tensor& v = core.in.v;
  const int64_t B = v.size(0), T = v.size(1), H = v.size(2) * v.size(3);
  Core same = core;
  same.op = &find_op("linear");
  same.in = {};
  same.in.v = v.reshape({B, T, H, 1});
  same.in.q = at::ones_like(same.in.v);
  same.in.k = same.in.q;
  const at::Tensor g = core.in.g.dim() == 3 ? core.in.g.unsqueeze(-1) : core.in.g;
  same.in.g = g.expand_as(v).reshape({B, T, H});
  return same;
}

// Every input with the H heads of the queries, and the options of a plain call.
Core with_all_heads(Core core) {
  const int64_t r = core.in.q.size(2) / core.in.v.size(2);
  for (at::Tensor* x : {&core.in.k, &core.in.v, &core.in.g, &core.in.beta}) {
    if (x->defined()) *x = x->repeat_interleave(r, 2);
  }
  core.options.form = "auto";
  core.options.final_state = false;
  core.options.log_norm = false;
  return core;
}

double scale_of(const Core& core) {
  const bool root = core.name() == "attention" || core.name() == "power";
  const double K = double(core.in.q.size(3));
  return core.options.scale.value_or(root ? 1 / std::sqrt(K) : 1.0);
}

// exp(scale q_t.k_s) over the visible s.   (B,T,H,T)
at::Tensor softmax_weights(const Core& core) {
  const int64_t T = core.in.q.size(1), window = core.options.window;
  at::Tensor x = at::einsum("bthk,bshk->bths", {core.in.q, core.in.k}) * scale_of(core);
  if (core.options.clamp) x = x.clamp_max(*core.options.clamp);
  const at::Tensor t = at::arange(T, x.options());
  const at::Tensor ago = t.view({T, 1, 1}) - t.view({1, 1, T});
  at::Tensor visible = ago >= 0;
  if (window > 0) visible = visible.logical_and((ago < window).logical_or(t < core.options.sinks));
  return at::where(visible, x.exp(), 0.0);
}

// What o_t is divided by.   (B,T,H)
at::Tensor normaliser(const Core& core, const at::Tensor& C) {
  const at::Tensor& v = core.in.v;
  at::Tensor eta = at::ones({v.size(0), v.size(1), v.size(2)}, v.options());
  if (core.name() == "attention") {
    eta = C.sum(-1);
  } else if (core.options.norm == "sum") {
    Inputs ones = core.in;
    ones.v = at::ones_like(v.narrow(3, 0, 1));
    Options plain = core.options;
    plain.norm = "none";
    eta = run(*core.op, ones, {}, plain).o.squeeze(-1).clamp_min(core.options.eps);
  }
  return core.eta.defined() ? eta * core.eta : eta;
}

at::Tensor log_decay(const Core& core) {  // (B,T,H,F) or (B,T,H,1)
  const at::Tensor& g = core.in.g;
  const at::Tensor& v = core.in.v;
  if (!g.defined()) return at::zeros({v.size(0), v.size(1), v.size(2), 1}, v.options());
  const at::Tensor wide = g.dim() == 3 ? g.unsqueeze(-1) : g;
  if (core.name() != "power" || core.options.decay == "outside") return wide;
  return monomial_sums(wide.expand_as(core.in.k), core.options.order);
}

}  // namespace

System system_of(const Core& given) {
  if (given.system) return *given.system;
  HORNER_CHECK(given.options.causal, "[{}] both directions are not a recurrence", given.name());
  const Core core = with_all_heads(as_linear(given));
  const Inputs& in = core.in;
  System s;
  s.u = in.v;
  s.D = core.skip.defined() ? core.skip : at::zeros_like(in.v.select(3, 0));
  if (core.name() == "delta") {
    const at::Tensor I = at::eye(in.k.size(3), in.k.options());
    s.B = in.beta.unsqueeze(-1) * in.k;
    s.Lambda = I - s.B.unsqueeze(-1) * in.k.unsqueeze(-2);      // I - beta_t k_t^T k_t
    s.Lambda = s.Lambda * log_decay(core).exp().unsqueeze(-2);  // .. diag(a_t)
    s.C = scale_of(core) * in.q;
    return s;
  }
  s.B = in.k;
  s.C = scale_of(core) * in.q;
  if (core.name() == "power") {
    const auto W = monomial_weights(in.k.size(3), series(core.options));
    s.B = monomials(in.k, core.options.order);
    s.C = monomials(s.C, core.options.order) * at::tensor(W, in.q.options());
  } else if (core.name() == "attention") {
    const int64_t T = in.q.size(1);
    s.B = at::eye(T, in.k.options()).view({1, T, 1, T});
    s.C = softmax_weights(core);
  }
  const at::Tensor eta = normaliser(core, s.C).unsqueeze(-1);  // (B,T,H,1)
  const at::Tensor before = at::cat({eta.narrow(1, 0, 1), eta.narrow(1, 0, eta.size(1) - 1)}, 1);
  s.Lambda = log_decay(core).exp() * (before / eta);
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
  if (given.system) {
    System s = *given.system;
    const int64_t T = s.u.size(1);
    const at::Tensor one_hot = at::eye(T, s.u.options()).view({1, T, 1, T});
    s.u = one_hot.expand({s.u.size(0), T, s.u.size(2), T});
    return rebuild(s).permute({0, 2, 1, 3});
  }
  const Core core = with_all_heads(as_linear(given));
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
