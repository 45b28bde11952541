// The fused parts in plain operations: what kernels are compared with, and the backward's formulas.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "nn/fused/kernels.h"
#include "nn/precision.h"

namespace horner {
namespace {

at::Tensor row_mean(const at::Tensor& x) { return x.mean(-1, true); }
at::Tensor sum_rows(const at::Tensor& x, const at::Tensor& like) {  // (..,H,n) -> (1,H,n) or (1,n)
  const int64_t n = x.size(-1);
  return like.dim() == 2 ? x.reshape({-1, like.size(0), n}).sum(0, true)
                         : x.reshape({-1, n}).sum(0, true);
}

void add_norm(
    const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& weight,
    double eps,
    at::Tensor& sum,
    at::Tensor& norm,
    at::Tensor& r
) {
  if (y.defined()) sum.copy_(x + y);
  const at::Tensor scale = (row_mean(sum.square()) + eps).rsqrt();
  r.copy_(scale.flatten());
  norm.copy_(sum * scale * weight);
}

AddNormGrads add_norm_backward(
    const at::Tensor& sum,
    const at::Tensor& r,
    const at::Tensor& weight,
    const at::Tensor& dnorm,
    const at::Tensor& dsum,
    bool wants_dy
) {
  std::vector<int64_t> row = sum.sizes().vec();
  row.back() = 1;
  const at::Tensor scale = r.view(row), d = dnorm.to(sum.scalar_type()), wd = weight * d;
  AddNormGrads g;
  g.dx = scale * (wd - sum * scale.square() * row_mean(sum * wd));  // r (w d - x r^2 mean(x w d))
  if (dsum.defined()) g.dx = g.dx + dsum;
  if (wants_dy) g.dy = g.dx.to(dnorm.scalar_type());
  g.dweight = sum_rows(d * sum * scale, weight);
  return g;
}

struct Activated {
  at::Tensor value, slope;
};
Activated activation(Gate act, const at::Tensor& z) {
  const at::Tensor s = z.sigmoid();
  if (act == Gate::sigmoid) return {s, s * (1 - s)};
  return {z * s, s * (1 + z * (1 - s))};
}

// xh and r of gated_norm
Activated standardised(const NormInput& in) {
  at::Tensor x = wide(in.x);
  if (in.layer) x = x - row_mean(x);
  const at::Tensor r = (row_mean(x.square()) + in.eps).rsqrt();
  return {x * r, r};
}

at::Tensor gated_norm(const NormInput& in) {
  at::Tensor y = standardised(in).value;
  if (in.weight.defined()) y = y * in.weight;
  if (in.gate.defined()) y = y * activation(in.act, wide(in.gate)).value;
  return y.to(in.x.scalar_type());
}

NormGrads gated_norm_backward(const NormInput& in, const at::Tensor& dy) {
  const auto [x, r] = standardised(in);
  at::Tensor d = wide(dy);
  NormGrads g;
  const at::Tensor y = in.weight.defined() ? x * in.weight : x;
  if (in.gate.defined()) {
    const auto [a, slope] = activation(in.act, wide(in.gate));
    g.dgate = (d * y * slope).to(in.gate.scalar_type());
    d = d * a;
  }
  if (in.weight.defined()) {
    g.dweight = sum_rows(d * x, in.weight);
    d = d * in.weight;
  }
  at::Tensor dx = d - x * row_mean(d * x);
  if (in.layer) dx = dx - row_mean(d);
  g.dx = (r * dx).to(in.x.scalar_type());
  return g;
}

at::Tensor with_skip(const NormInput& in) {
  return in.u.defined() ? wide(in.x) + in.D * wide(in.u) : wide(in.x);
}

at::Tensor skip_norm(const NormInput& in) {
  const at::Tensor t = with_skip(in) * activation(Gate::silu, wide(in.gate)).value;
  return (t * (row_mean(t.square()) + in.eps).rsqrt() * in.weight).to(in.x.scalar_type());
}

NormGrads skip_norm_backward(const NormInput& in, const at::Tensor& dy) {
  const auto [silu, slope] = activation(Gate::silu, wide(in.gate));
  const at::Tensor x = with_skip(in), t = x * silu, d = wide(dy), wd = in.weight * d;
  const at::Tensor r = (row_mean(t.square()) + in.eps).rsqrt();
  const at::Tensor dt = r * (wd - t * r.square() * row_mean(t * wd));
  const at::Tensor dx = dt * silu;
  NormGrads g;
  g.dx = dx.to(in.x.scalar_type());
  g.dgate = (dt * x * slope).to(in.gate.scalar_type());
  g.dweight = sum_rows(d * t * r, in.weight);
  if (!in.u.defined()) return g;
  g.du = (in.D * dx).to(in.u.scalar_type());
  g.dD = sum_rows(dx * wide(in.u), in.D);
  return g;
}

at::Tensor swiglu_forward(const at::Tensor& a, const at::Tensor& b) {
  return (activation(Gate::silu, wide(a)).value * wide(b)).to(a.scalar_type());
}

std::pair<at::Tensor, at::Tensor> swiglu_backward(
    const at::Tensor& a, const at::Tensor& b, const at::Tensor& dy
) {
  const auto [silu, slope] = activation(Gate::silu, wide(a));
  const at::Tensor d = wide(dy);
  return {(d * wide(b) * slope).to(a.scalar_type()), (d * silu).to(b.scalar_type())};
}

}  // namespace

FusedKernels plain_fused() {
  FusedKernels k;
  k.norm_takes = [](int64_t, int64_t) { return true; };
  k.add_norm = add_norm;
  k.add_norm_backward = add_norm_backward;
  k.gated_norm = gated_norm;
  k.gated_norm_backward = gated_norm_backward;
  k.skip_norm = skip_norm;
  k.skip_norm_backward = skip_norm_backward;
  k.swiglu = swiglu_forward;
  k.swiglu_backward = swiglu_backward;
  return k;
}

}  // namespace horner
