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

at::Tensor keys_of(const at::Tensor& g, const at::Tensor& z) {
  return (-g.expm1()).to(z.scalar_type());
}

DecayAndKeys plain_decay(const at::Tensor& z, const Decay& d, bool keys) {
  const at::Tensor g = times_c(at::softplus(argument(z, d)), d);
  return {g, keys ? keys_of(g, z) : at::Tensor()};
}

DecayGrads plain_decay_backward(
    const at::Tensor& z, const Decay& d, const at::Tensor& of_g, const at::Tensor& dk
) {
  const at::Tensor x = argument(z, d), softplus = at::softplus(x);
  const at::Tensor dg = dk.defined() ? of_g - times_c(softplus, d).exp() * dk : of_g;
  const at::Tensor slope = times_c(dg * x.sigmoid(), d);
  const int64_t n = z.size(-1);
  DecayGrads g;
  g.dz = (d.negated ? -slope : slope).to(z.scalar_type());
  g.db = slope.reshape({-1, n}).sum(0, true);
  g.dc = (dg * softplus * -d.scale).reshape({-1, n}).sum(0, true);
  return g;
}

at::Tensor plain_elu1(const at::Tensor& z) { return (at::elu(wide(z)) + 1).to(z.scalar_type()); }

at::Tensor plain_elu1_backward(const at::Tensor& z, const at::Tensor& dy) {
  return (wide(dy) * wide(z).clamp_max(0).exp()).to(z.scalar_type());
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
      .decay = plain_decay,
      .decay_backward = plain_decay_backward,
      .elu1 = plain_elu1,
      .elu1_backward = plain_elu1_backward,
      .scale = plain_scale,
      .scale_backward = plain_scale_backward};
  return x.is_cuda() && gate_kernels().decay ? gate_kernels() : plain;
}

class DecayNode : public torch::autograd::Function<DecayNode> {
 public:
  static variable_list forward(
      AutogradContext* ctx,
      const at::Tensor& z,
      const Maybe& b,
      const Maybe& c,
      bool negated,
      double scale,
      bool keys
  ) {
    const Decay d{negated, given(b), given(c), scale};
    const at::Tensor x = z.contiguous();
    ctx->save_for_backward({x, d.b, d.c});
    ctx->saved_data["negated"] = negated;
    ctx->saved_data["scale"] = scale;
    const DecayAndKeys y = kernels_for(z).decay(x, d, keys);
    if (!keys) return {y.g};
    return {y.g, y.k};
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto saved = ctx->get_saved_variables();
    const Decay d{
        ctx->saved_data["negated"].toBool(),
        saved[1],
        saved[2],
        ctx->saved_data["scale"].toDouble()};
    const at::Tensor dk = dy.size() > 1 ? dy[1].contiguous() : at::Tensor();
    const DecayGrads g = kernels_for(saved[0]).decay_backward(saved[0], d, dy[0].contiguous(), dk);
    const auto sum = [](const at::Tensor& parts, const at::Tensor& like) {
      return like.defined() ? parts.sum(0) : at::Tensor();
    };
    return {g.dz, sum(g.db, d.b), sum(g.dc, d.c), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

class Elu1Node : public torch::autograd::Function<Elu1Node> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& z) {
    const at::Tensor x = z.contiguous();
    ctx->save_for_backward({x});
    return kernels_for(z).elu1(x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const at::Tensor z = ctx->get_saved_variables()[0];
    return {kernels_for(z).elu1_backward(z, dy[0].contiguous())};
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

bool decay_fuses(const at::Tensor& z, const Decay& d) {
  return fusable({z}) && z.size(-1) <= kWidestGate && single(d.b) && single(d.c);
}

}  // namespace

GateKernels& gate_kernels() {
  static GateKernels kernels;
  return kernels;
}

at::Tensor fused_decay(const at::Tensor& z, const Decay& d) {
  return DecayNode::apply(z, maybe(d.b), maybe(d.c), d.negated, d.scale, false)[0];
}
DecayAndKeys fused_decay_and_keys(const at::Tensor& z, const Decay& d) {
  const variable_list y = DecayNode::apply(z, maybe(d.b), maybe(d.c), d.negated, d.scale, true);
  return {y[0], y[1]};
}
at::Tensor fused_elu1(const at::Tensor& z) { return Elu1Node::apply(z); }
at::Tensor fused_scale_heads(const at::Tensor& x, const at::Tensor& s) {
  return ScaleNode::apply(x, s);
}

at::Tensor decay(const at::Tensor& z, const Decay& d) {
  const Part part(parts::kGates);
  if (decay_fuses(z, d)) return fused_decay(z, d);
  if (d.negated && !d.b.defined() && !d.c.defined()) return at::log_sigmoid(wide(z)) * d.scale;
  return plain_decay(z, d, false).g;
}

DecayAndKeys decay_and_keys(const at::Tensor& z, const Decay& d) {
  const Part part(parts::kGates);
  if (decay_fuses(z, d)) return fused_decay_and_keys(z, d);
  const at::Tensor g = decay(z, d);
  return {g, keys_of(g, z)};
}

at::Tensor elu1(const at::Tensor& z) {
  const Part part(parts::kGates);
  return fusable({z}) ? fused_elu1(z) : at::elu(wide(z)) + 1;
}

at::Tensor scale_heads(const at::Tensor& x, const at::Tensor& s) {
  const Part part(parts::kGates);
  const bool fuses = fusable({x}) && x.size(-1) <= kWidestGate && single(s);
  return fuses ? fused_scale_heads(x, s) : plain_scale(x, s);
}

}  // namespace horner
