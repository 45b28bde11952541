#include "nn/inline_sums/inline_sums.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/memory.h"

namespace horner {
namespace {

constexpr int64_t kMostTaps = 4;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Maybe = std::optional<at::Tensor>;

class WeightsNode : public torch::autograd::Function<WeightsNode> {
 public:
  static variable_list forward(
      AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v
  ) {
    const InlineWeighted w =
        inline_kernels().weights(q.contiguous(), k.contiguous(), v.contiguous());
    ctx->save_for_backward({w.qh, w.k});
    return {w.qh, w.k, w.v, w.c};
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = ctx->get_saved_variables();
    const auto [dq, dk] = inline_kernels().weights_backward(
        saved[0], saved[1], {d[0].contiguous(), d[1].contiguous(), {}, d[3].contiguous()}
    );
    return {dq, dk, d[2]};
  }
};

// v' has the whole gradient of the values: v' = v - v_1, and v_1 has none.
class OutputNode : public torch::autograd::Function<OutputNode> {
 public:
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& read,
      const at::Tensor& v,
      const at::Tensor& /*shifted*/,
      const at::Tensor& c,
      const Maybe& rk,
      const Maybe& bias
  ) {
    const at::Tensor none, own = v.contiguous(), r = rk ? rk->contiguous() : none,
                           b = bias ? bias->contiguous() : none;
    ctx->save_for_backward({own, c, r, b});
    return inline_kernels().output(read.contiguous(), own, c, r, b);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto s = ctx->get_saved_variables();
    const at::Tensor d = dy[0].contiguous();
    const InlineOutputGrads g = inline_kernels().output_backward(s[0], s[1], s[2], s[3], d);
    return {d, at::Tensor(), g.dv, g.dc, g.drk, g.dbias.defined() ? g.dbias.sum(0) : at::Tensor()};
  }
};

// a^T b of each head, (H,B,T,X) and (H,B,T,Y) -> (H,X,Y): a product for each row of the batch, which fills the GPU.
at::Tensor over_tokens(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  const at::Tensor parts = at::bmm(a.flatten(0, 1).transpose(1, 2), b.flatten(0, 1));
  return parts.unflatten(0, {a.size(0), a.size(1)}).sum(1, false, at::kFloat).to(type);
}

// x (H,B,T,X), W (H,X,Y) -> (H,B,T,Y)
at::Tensor of_heads(const at::Tensor& x, const at::Tensor& W) {
  return at::bmm(x.flatten(1, 2), W).unflatten(1, {x.size(1), x.size(2)});
}

class TapsNode : public torch::autograd::Function<TapsNode> {
 public:
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const at::Tensor& W1,
      const at::Tensor& b1,
      const at::Tensor& W2
  ) {
    const at::Tensor first = W1.to(at::kBFloat16), second = W2.to(at::kBFloat16);
    const at::Tensor mean =
        inline_kernels().mean(x.contiguous().unflatten(-1, {W1.size(0), W1.size(1)}));
    const at::Tensor z = of_heads(mean, first), none;
    const at::Tensor hidden = inline_kernels().gelu(z, b1, none);
    ctx->save_for_backward({mean, z, hidden, first, b1, second});
    ctx->saved_data["x"] = x.scalar_type();
    ctx->saved_data["W"] = W1.scalar_type();
    return of_heads(hidden, second);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto s = ctx->get_saved_variables();
    const at::Tensor &mean = s[0], &z = s[1], &hidden = s[2], d = dy[0].contiguous();
    const auto type = ctx->saved_data["W"].toScalarType();
    const at::Tensor dz = inline_kernels().gelu(z, s[4], of_heads(d, s[5].transpose(1, 2)));
    const at::Tensor dx = inline_kernels().mean_backward(
        of_heads(dz, s[3].transpose(1, 2)), ctx->saved_data["x"].toScalarType()
    );
    return {
        dx.flatten(2),
        over_tokens(mean, dz, type),
        dz.sum({1, 2}, false, at::kFloat),
        over_tokens(hidden, d, type)};
  }
};

}  // namespace

InlineKernels& inline_kernels() {
  static InlineKernels kernels;
  return kernels;
}

bool inline_fuses(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t taps) {
  const int64_t K = q.size(-1);
  const auto fits = [](const at::Tensor& x) {
    return x.is_cuda() && has_memory(x) && x.scalar_type() == at::kBFloat16 && x.numel() > 0;
  };
  return fits(q) && fits(k) && fits(v) && inline_kernels().weights != nullptr &&
         taps <= kMostTaps && (K == 16 || K == 32 || K == 64 || K == 128);
}

InlineWeighted inline_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const variable_list w = WeightsNode::apply(q, k, v);
  return {w[0], w[1], w[2], w[3]};
}

at::Tensor inline_taps(const at::Tensor& x, const InlineTaps& t) {
  const bool narrow = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat;
  return TapsNode::apply(
      narrow ? x : x.to(at::kFloat), t.W1, t.b1.to(at::kFloat).contiguous(), t.W2
  );
}

at::Tensor inline_output(
    const at::Tensor& read,
    const at::Tensor& v,
    const InlineWeighted& w,
    const at::Tensor& rk,
    const at::Tensor& bias
) {
  const auto maybe = [](const at::Tensor& x) { return x.defined() ? Maybe(x) : std::nullopt; };
  const Maybe b = bias.defined() ? Maybe(bias.to(at::kFloat)) : std::nullopt;
  return OutputNode::apply(read, v.detach(), w.v, w.c, maybe(rk), b);
}

}  // namespace horner
