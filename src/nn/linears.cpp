#include "nn/linears.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/memory.h"
#include "nn/part.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::ScalarType product_type(const at::Tensor& x, const at::Tensor& weight) {
  const auto device = x.device().type();
  if (x.scalar_type() != at::kDouble && at::autocast::is_autocast_enabled(device))
    return at::autocast::get_autocast_dtype(device);
  return weight.element_size() < x.element_size() ? weight.scalar_type() : x.scalar_type();
}

at::Tensor rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }  // (..,n) -> (N,n)

// a b in the given type; a GPU's product writes fp32 from bf16 by itself.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  if (a.scalar_type() == type) return at::mm(a, b);
  return a.is_cuda() && type == at::kFloat ? at::mm(a, b, type) : at::mm(a, b).to(type);
}

class LinearsNode : public torch::autograd::Function<LinearsNode> {
 public:
  // biases: as many as weights; an empty one stands for none
  static variable_list forward(
      AutogradContext* ctx, const at::Tensor& given, at::TensorList weights, at::TensorList biases
  ) {
    const at::ScalarType type = product_type(given, weights[0]);
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard typed(c10::autocast_dispatch_keyset);
    const at::Tensor x = given.to(type).contiguous();
    std::vector<int64_t> sizes = x.sizes().vec();
    variable_list y, saved = {x};
    for (size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor W = weights[i].to(type);
      const bool biased = biases[i].numel() > 0;
      sizes.back() = W.size(0);
      const at::Tensor own = biased ? at::addmm(biases[i].to(type), rows(x), W.t())
                                    : at::mm(rows(x), W.t());  // y_i = x W_i^T + b_i
      y.push_back(own.view(sizes));
      saved.push_back(W);
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["x"] = given.scalar_type();
    ctx->saved_data["weight"] = weights[0].scalar_type();
    ctx->set_materialize_grads(false);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor x = rows(saved[0]);
    const at::ScalarType type = ctx->saved_data["weight"].toScalarType();
    const size_t n = dy.size();
    variable_list d(1 + 2 * n);
    at::Tensor dx;
    for (size_t i = 0; i < n; ++i) {
      if (!dy[i].defined()) continue;
      const at::Tensor own = rows(dy[i]);
      if (ctx->needs_input_grad(0)) {
        if (dx.defined())
          at::addmm_out(dx, dx, own, saved[1 + i]);  // dx += dy_i W_i
        else
          dx = at::mm(own, saved[1 + i]);
      }
      if (ctx->needs_input_grad(1 + i)) d[1 + i] = product(own.t(), x, type);  // dW_i = dy_i^T x
      if (ctx->needs_input_grad(1 + n + i)) d[1 + n + i] = own.sum(0, false, type);
    }
    if (dx.defined()) d[0] = dx.view(saved[0].sizes()).to(ctx->saved_data["x"].toScalarType());
    return d;
  }
};

// The weights as one matrix, if they lie one after the other: as decoding in bf16 lays them.
at::Tensor joined(const std::vector<Linear>& list) {
  int64_t rows = 0;
  const at::Tensor& first = list[0].weight;
  for (const Linear& l : list) {
    const at::Tensor& W = l.weight;
    const bool next = W.scalar_type() == at::kBFloat16 && W.is_contiguous() &&
                      W.size(1) == first.size(1) && !l.bias.defined() &&
                      W.storage().is_alias_of(first.storage()) &&
                      W.storage_offset() == first.storage_offset() + rows * first.size(1);
    if (!next) return {};
    rows += W.size(0);
  }
  return first.as_strided({rows, first.size(1)}, {first.size(1), 1});
}

std::vector<at::Tensor> project_joined(
    const at::Tensor& x, const at::Tensor& weight, const std::vector<Linear>& list
) {
  const at::Tensor all = Linear{weight, {}}(x);
  std::vector<at::Tensor> y;
  int64_t at = 0;
  for (const Linear& l : list) {
    y.push_back(all.narrow(-1, at, l.weight.size(0)));
    at += l.weight.size(0);
  }
  return y;
}

}  // namespace

void lay_together(const std::vector<at::Tensor>& weights) {
  int64_t rows = 0;
  for (const at::Tensor& W : weights) rows += W.size(0);
  const at::Tensor all = at::empty({rows, weights[0].size(1)}, weights[0].options()).detach();
  int64_t at = 0;
  for (at::Tensor W : weights) {
    const at::Tensor own = all.narrow(0, at, W.size(0));
    own.copy_(W.detach());
    W.set_data(own);
    at += own.size(0);
  }
}

std::vector<at::Tensor> project_by_node(const at::Tensor& x, const std::vector<Linear>& list) {
  const Part part(parts::kProjections);
  std::vector<at::Tensor> weights, biases;
  for (const Linear& l : list) {
    weights.push_back(l.weight);
    biases.push_back(l.bias.defined() ? l.bias : at::empty({0}, l.weight.options()));
  }
  return LinearsNode::apply(x, at::TensorList(weights), at::TensorList(biases));
}

std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<Linear>& list) {
  std::vector<at::Tensor> y(list.size());
  std::vector<Linear> some;
  for (const Linear& l : list)
    if (l.weight.defined()) some.push_back(l);
  const bool learns = c10::GradMode::is_enabled();
  std::vector<at::Tensor> all;
  if (learns && x.is_cuda() && has_memory(x)) all = project_by_node(x, some);
  if (!learns && some.size() > 1 && has_memory(x)) {
    if (const at::Tensor W = joined(some); W.defined()) all = project_joined(x, W, some);
  }
  for (size_t i = 0, n = 0; i < list.size(); ++i) {
    if (list[i].weight.defined()) y[i] = all.empty() ? list[i](x) : all[n++];
  }
  return y;
}

}  // namespace horner
