#include "nn/fused/fused.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/memory.h"
#include "nn/fused/kernels.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const FusedKernels& kernels_for(const at::Tensor& x) {
  static const FusedKernels plain = plain_fused();
  return x.is_cuda() && fused_kernels().swiglu ? fused_kernels() : plain;
}
at::Tensor contiguous(const at::Tensor& x) { return x.defined() ? x.contiguous() : x; }
// A node takes no undefined tensor, only an empty optional one.
using Maybe = std::optional<at::Tensor>;
Maybe maybe(const at::Tensor& x) { return x.defined() ? Maybe(x) : std::nullopt; }
at::Tensor given(const Maybe& x) { return x ? x->contiguous() : at::Tensor(); }
// (B,T,n) as it is where its tokens follow each other at one distance, in whole units of 8 numbers.
at::Tensor with_rows(const at::Tensor& x) {
  const bool rows = x.dim() == 3 && x.stride(2) == 1 && x.stride(1) % 8 == 0 &&
                    (x.size(0) == 1 || x.stride(0) == x.size(1) * x.stride(1)) &&
                    x.storage_offset() % 8 == 0;
  return rows ? x : x.contiguous();
}
at::Tensor summed(const at::Tensor& parts, const at::Tensor& like) {
  return like.defined() ? parts.sum(0).to(like.scalar_type()) : at::Tensor();
}

class AddNormNode : public torch::autograd::Function<AddNormNode> {
 public:
  static variable_list forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const Maybe& maybe_y,
      const at::Tensor& weight,
      double eps,
      int64_t type
  ) {
    const at::Tensor own = x.contiguous(), y = given(maybe_y);
    at::Tensor sum = y.defined() ? at::empty_like(own) : own;
    at::Tensor norm = at::empty_like(own, own.options().dtype(at::ScalarType(type)));
    at::Tensor r = at::empty({own.numel() / own.size(-1)}, own.options());
    kernels_for(x).add_norm(own, y, weight.contiguous(), eps, sum, norm, r);
    ctx->save_for_backward({sum, r, weight});
    ctx->saved_data["y"] = y.defined();
    ctx->set_materialize_grads(false);
    if (!y.defined()) return {norm};
    return {sum, norm};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[2];
    const bool y = ctx->saved_data["y"].toBool();
    const at::Tensor dsum = y ? contiguous(grads[0]) : at::Tensor();
    const at::Tensor dnorm = contiguous(grads.back());
    if (!dnorm.defined()) return {dsum, dsum, at::Tensor(), at::Tensor(), at::Tensor()};
    const AddNormGrads g =
        kernels_for(sum).add_norm_backward(sum, saved[1], weight.contiguous(), dnorm, dsum, y);
    return {g.dx, g.dy, summed(g.dweight, weight), at::Tensor(), at::Tensor()};
  }
};

class GatedNormNode : public torch::autograd::Function<GatedNormNode> {
 public:
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const Maybe& weight,
      const Maybe& gate,
      double eps,
      bool layer,
      int64_t act
  ) {
    const NormInput in{x.contiguous(), given(weight), given(gate), {}, {}, eps, layer, Gate(act)};
    ctx->save_for_backward({in.x, in.weight, in.gate});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["act"] = act;
    return kernels_for(x).gated_norm(in);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto saved = ctx->get_saved_variables();
    NormInput in{saved[0], saved[1], saved[2], {}, {}, ctx->saved_data["eps"].toDouble()};
    in.layer = ctx->saved_data["layer"].toBool();
    in.act = Gate(ctx->saved_data["act"].toInt());
    const NormGrads g = kernels_for(in.x).gated_norm_backward(in, dy[0].contiguous());
    return {g.dx, summed(g.dweight, in.weight), g.dgate, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

class SkipNormNode : public torch::autograd::Function<SkipNormNode> {
 public:
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const Maybe& u,
      const Maybe& D,
      const at::Tensor& gate,
      const at::Tensor& weight,
      double eps
  ) {
    const NormInput in{
        x.contiguous(), weight.contiguous(), with_rows(gate), given(u), given(D), eps};
    ctx->save_for_backward({in.x, in.weight, in.gate, in.u, in.D});
    ctx->saved_data["eps"] = eps;
    return kernels_for(x).skip_norm(in);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto s = ctx->get_saved_variables();
    const NormInput in{s[0], s[1], s[2], s[3], s[4], ctx->saved_data["eps"].toDouble()};
    const NormGrads g = kernels_for(in.x).skip_norm_backward(in, dy[0].contiguous());
    const at::Tensor dD = summed(g.dD, in.D), dw = summed(g.dweight, in.weight);
    return {g.dx, g.du, dD, g.dgate, dw, at::Tensor()};
  }
};

class SwigluNode : public torch::autograd::Function<SwigluNode> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor x = a.contiguous(), y = b.contiguous();
    ctx->save_for_backward({x, y});
    return kernels_for(a).swiglu(x, y);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto saved = ctx->get_saved_variables();
    const auto [da, db] =
        kernels_for(saved[0]).swiglu_backward(saved[0], saved[1], dy[0].contiguous());
    return {da, db};
  }
};

}  // namespace

FusedKernels& fused_kernels() {
  static FusedKernels kernels;
  return kernels;
}

bool fusable(std::initializer_list<at::Tensor> tensors) {
  if (fused_kernels().swiglu == nullptr) return false;
  std::optional<at::ScalarType> type;
  for (const at::Tensor& x : tensors) {
    if (!x.defined()) continue;
    const at::ScalarType own = x.scalar_type();
    if (!x.is_cuda() || !has_memory(x) || (own != at::kBFloat16 && own != at::kFloat)) return false;
    if (x.numel() == 0 || x.size(-1) % 8 != 0 || (type && *type != own)) return false;
    type = own;
  }
  return type.has_value();
}

bool norm_fusable(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gate) {
  const bool single = !weight.defined() || weight.scalar_type() == at::kFloat;
  const int64_t heads = weight.defined() && weight.dim() == 2 ? weight.size(0) : 1;
  return single && fusable({x, gate}) && fused_kernels().norm_takes(x.size(-1), heads);
}

AddNorm fused_add_norm(
    const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& weight,
    double eps,
    at::ScalarType type
) {
  const variable_list all = AddNormNode::apply(x, maybe(y), weight, eps, int64_t(type));
  return {y.defined() ? all[0] : x, all.back()};
}

at::Tensor fused_gated_norm(
    const at::Tensor& x,
    const at::Tensor& weight,
    const at::Tensor& gate,
    double eps,
    bool layer,
    Gate act
) {
  return GatedNormNode::apply(x, maybe(weight), maybe(gate), eps, layer, int64_t(act));
}

at::Tensor fused_skip_norm(
    const at::Tensor& x,
    const at::Tensor& u,
    const at::Tensor& D,
    const at::Tensor& gate,
    const at::Tensor& weight,
    double eps
) {
  return SkipNormNode::apply(x, maybe(u), maybe(D), gate, weight, eps);
}

at::Tensor fused_swiglu(const at::Tensor& a, const at::Tensor& b) {
  return SwigluNode::apply(a, b);
}

at::Tensor swiglu(const at::Tensor& a, const at::Tensor& b) {
  if (!fusable({a, b})) return at::silu(a) * b;
  if (c10::GradMode::is_enabled()) return fused_swiglu(a, b);
  const at::Tensor x = with_rows(a), y = with_rows(b);  // two parts of one product, as they are
  const bool same = x.strides() == y.strides();
  return kernels_for(a).swiglu(same ? x : x.contiguous(), same ? y : y.contiguous());
}

}  // namespace horner
