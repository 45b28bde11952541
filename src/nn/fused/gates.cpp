#include "nn/fused/gates.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/fused/fused.h"
#include "nn/part.h"
#include "nn/precision.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Maybe = std::optional<at::Tensor>;

Maybe maybe(const at::Tensor& x) { return x.defined() ? Maybe(x) : std::nullopt; }
at::Tensor given(const Maybe& x) { return x ? x->contiguous() : at::Tensor(); }

at::Tensor argument(const at::Tensor& z, const Decay& d) {  // s z + b
  const at::Tensor x = d.negated ? -wide(z) : wide(z);
  return d.b.defined() ? x + d.b : x;
}
at::Tensor times_c(const at::Tensor& x, const Decay& d) {
  return (d.c.defined() ? x * d.c : x) * -d.scale;
}

at::Tensor plain_decay(const at::Tensor& z, const Decay& d) {
  return times_c(at::softplus(argument(z, d)), d);
}

DecayGrads plain_decay_backward(const at::Tensor& z, const Decay& d, const at::Tensor& dg) {
  const at::Tensor x = argument(z, d), slope = times_c(dg * x.sigmoid(), d);
  const int64_t n = z.size(-1);
  DecayGrads g;
  g.dz = (d.negated ? -slope : slope).to(z.scalar_type());
  g.db = slope.reshape({-1, n}).sum(0, true);
  g.dc = (dg * at::softplus(x) * -d.scale).reshape({-1, n}).sum(0, true);
  return g;
}

at::Tensor plain_scale(const at::Tensor& x, const at::Tensor& s) {
  return (wide(x) * s.unsqueeze(-1)).to(x.scalar_type());
}

std::pair<at::Tensor, at::Tensor> plain_scale_backward(
    const at::Tensor& x, const at::Tensor& s, const at::Tensor& dy
) {
  return {plain_scale(dy, s), (wide(x) * wide(dy)).sum(-1)};
}

const GateKernels& kernels_for(const at::Tensor& x) {
  static const GateKernels plain{
      plain_decay, plain_decay_backward, plain_scale, plain_scale_backward, {}, {}, {}};
  return x.is_cuda() && gate_kernels().decay ? gate_kernels() : plain;
}

class DecayNode : public torch::autograd::Function<DecayNode> {
 public:
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& z,
      const Maybe& b,
      const Maybe& c,
      bool negated,
      double scale
  ) {
    const Decay d{negated, given(b), given(c), scale};
    const at::Tensor x = z.contiguous();
    ctx->save_for_backward({x, d.b, d.c});
    ctx->saved_data["negated"] = negated;
    ctx->saved_data["scale"] = scale;
    return kernels_for(z).decay(x, d);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dg) {
    const auto saved = ctx->get_saved_variables();
    const Decay d{
        ctx->saved_data["negated"].toBool(),
        saved[1],
        saved[2],
        ctx->saved_data["scale"].toDouble()};
    const DecayGrads g = kernels_for(saved[0]).decay_backward(saved[0], d, dg[0].contiguous());
    const auto sum = [](const at::Tensor& parts, const at::Tensor& like) {
      return like.defined() ? parts.sum(0) : at::Tensor();
    };
    return {g.dz, sum(g.db, d.b), sum(g.dc, d.c), at::Tensor(), at::Tensor()};
  }
};

class ScaleNode : public torch::autograd::Function<ScaleNode> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& s) {
    const at::Tensor rows = x.contiguous(), each = s.contiguous();
    ctx->save_for_backward({rows, each});
    return kernels_for(x).scale(rows, each);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto saved = ctx->get_saved_variables();
    const auto [dx, ds] =
        kernels_for(saved[0]).scale_backward(saved[0], saved[1], dy[0].contiguous());
    return {dx, ds};
  }
};

bool single(const at::Tensor& x) { return !x.defined() || x.scalar_type() == at::kFloat; }

}  // namespace

GateKernels& gate_kernels() {
  static GateKernels kernels;
  return kernels;
}

at::Tensor fused_decay(const at::Tensor& z, const Decay& d) {
  return DecayNode::apply(z, maybe(d.b), maybe(d.c), d.negated, d.scale);
}
at::Tensor fused_scale_heads(const at::Tensor& x, const at::Tensor& s) {
  return ScaleNode::apply(x, s);
}

at::Tensor decay(const at::Tensor& z, const Decay& d) {
  const Part part(parts::kGates);
  const bool fuses = fusable({z}) && z.size(-1) <= kWidestGate && single(d.b) && single(d.c);
  if (fuses) return fused_decay(z, d);
  if (d.negated && !d.b.defined() && !d.c.defined()) return at::log_sigmoid(wide(z)) * d.scale;
  return plain_decay(z, d);
}

at::Tensor scale_heads(const at::Tensor& x, const at::Tensor& s) {
  const Part part(parts::kGates);
  const bool fuses = fusable({x}) && x.size(-1) <= kWidestGate && single(s);
  return fuses ? fused_scale_heads(x, s) : plain_scale(x, s);
}

}  // namespace horner
