#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/fused/fused.h"
#include "nn/fused/gates.h"
#include "nn/part.h"
#include "nn/precision.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor weight_of(const Augment& in) {  // w (B,T,H,1)
  return (wide(in.q) * wide(in.k) * in.a).sum(-1, true);
}

at::Tensor plain_augment(const Augment& in) {
  const at::Tensor added = (weight_of(in) * wide(in.v)).sigmoid() + in.offset;
  return (wide(in.o) + added).to(in.o.scalar_type());
}

AugmentGrads plain_augment_backward(const Augment& in, const at::Tensor& dy) {
  const at::Tensor w = weight_of(in), v = wide(in.v), q = wide(in.q), k = wide(in.k);
  const at::Tensor p = (w * v).sigmoid(), d = wide(dy) * p * (1 - p);
  const at::Tensor dw = (d * v).sum(-1, true);
  AugmentGrads g;
  g.dv = (d * w).to(in.v.scalar_type());
  g.dq = (dw * k * in.a).to(in.q.scalar_type());
  g.dk = (dw * q * in.a).to(in.k.scalar_type());
  g.da = (dw * q * k).flatten(0, 1).sum(0, true);
  return g;
}

bool has_kernel(const at::Tensor& x) { return x.is_cuda() && gate_kernels().augment; }

class AugmentNode : public torch::autograd::Function<AugmentNode> {
 public:
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& q,
      const at::Tensor& k,
      const at::Tensor& a,
      const at::Tensor& v,
      const at::Tensor& o,
      double offset
  ) {
    const Augment in{
        q.contiguous(), k.contiguous(), a.contiguous(), v.contiguous(), o.contiguous(), offset};
    ctx->save_for_backward({in.q, in.k, in.a, in.v});
    return has_kernel(q) ? gate_kernels().augment(in) : plain_augment(in);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Augment in{saved[0], saved[1], saved[2], saved[3], {}};
    const at::Tensor dy = grads[0].contiguous();
    const AugmentGrads g =
        has_kernel(in.q) ? gate_kernels().augment_backward(in, dy) : plain_augment_backward(in, dy);
    return {g.dq, g.dk, g.da.sum(0), g.dv, dy, at::Tensor()};
  }
};

}  // namespace

at::Tensor fused_augment(const Augment& in) {
  return AugmentNode::apply(in.q, in.k, in.a, in.v, in.o, in.offset);
}

at::Tensor augment(const Augment& in) {
  const Part part(parts::kGates);
  const bool fuses = fusable({in.q, in.k, in.v, in.o}) && in.a.scalar_type() == at::kFloat &&
                     gate_kernels().augment_takes(in);
  if (fuses) return fused_augment(in);
  return in.o + ((weight_of(in) * in.v).sigmoid() + in.offset);
}

}  // namespace horner
