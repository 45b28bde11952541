#include "nn/onednn_linear.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/memory.h"

namespace horner {
namespace {

constexpr int64_t kRows = 256;

using Product = at::
    Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view, c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>);

const std::optional<c10::TypedOperatorHandle<Product>>& product() {
  static const auto found = []() -> std::optional<c10::TypedOperatorHandle<Product>> {
    const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
    return op->typed<Product>();
  }();
  return found;
}

at::Tensor times(const at::Tensor& x, const at::Tensor& weight) {  // x W^T
  const c10::List<std::optional<at::Scalar>> none;
  return product()->call(x, weight, std::nullopt, "none", none, "");
}

class OnednnLinear : public torch::autograd::Function<OnednnLinear> {
 public:
  static at::Tensor forward(
      torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight
  ) {
    ctx->save_for_backward({x, weight});
    return times(x, weight);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads
  ) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = grads[0].contiguous();
    at::Tensor dx, dw;
    if (ctx->needs_input_grad(0)) dx = times(dy, weight.t());
    if (ctx->needs_input_grad(1)) dw = dy.flatten(0, -2).t().mm(x.flatten(0, -2));
    return {dx, dw};
  }
};

}  // namespace

bool has_onednn_linear(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cpu() && has_memory(x) && x.dim() >= 2 && x.scalar_type() == at::kFloat &&
         weight.scalar_type() == at::kFloat && c10::GradMode::is_enabled() &&
         weight.requires_grad() && x.numel() >= kRows * x.size(-1) &&
         !at::autocast::is_autocast_enabled(at::kCPU) && product();
}

at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor y = OnednnLinear::apply(x.contiguous(), weight);
  return bias.defined() ? y + bias : y;
}

}  // namespace horner
