#include "nn/short_conv.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "core/initial.h"
#include "nn/initial_values.h"

namespace horner {
namespace {

constexpr int64_t kWidest = 4, kVector = 4;

class Convolve : public torch::autograd::Function<Convolve> {
 public:
  static at::Tensor forward(
      torch::autograd::AutogradContext* ctx,
      const at::Tensor& given,
      const at::Tensor& weight,
      const at::Tensor& bias,
      bool silu
  ) {
    const at::Tensor x = given.contiguous();
    at::Tensor y = at::empty_like(x);
    conv_kernels().forward(x, {weight, bias, silu}, y);
    ctx->save_for_backward({x, weight, bias});
    ctx->saved_data["silu"] = silu;
    return y;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list dy
  ) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const ConvWeights weights{weight, bias, ctx->saved_data["silu"].toBool()};
    at::Tensor dx = at::empty_like(x);
    const at::Tensor all = conv_kernels().backward(x, weights, dy[0].contiguous(), dx).sum(0);
    const int64_t W = weight.size(1);
    return {dx, all.narrow(0, 0, W).t(), all.select(0, W), at::Tensor()};
  }
};

}  // namespace

ConvKernels& conv_kernels() {
  static ConvKernels kernels;
  return kernels;
}

bool can_convolve(const at::Tensor& x, const ConvWeights& w) {
  const bool type = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  return x.is_cuda() && type && conv_kernels().forward != nullptr && x.numel() > 0 &&
         x.size(2) % kVector == 0 && w.weight.size(1) <= kWidest;
}

at::Tensor convolve(const at::Tensor& x, const ConvWeights& w) {
  const at::Tensor bias = w.bias.defined() ? w.bias.to(at::kFloat)
                                           : at::zeros({x.size(2)}, x.options().dtype(at::kFloat));
  return Convolve::apply(x, w.weight.to(at::kFloat).contiguous(), bias, w.silu);
}

at::Tensor ShortConv::operator()(const at::Tensor& x, Pass& pass) const {
  if (!weight.defined()) return x;
  return pass.over_time(x, [&](const at::Tensor& u, at::Tensor& tail) {
    const int64_t T = u.size(1), W = weight.size(1);
    const ConvWeights weights{weight, bias, activation == "silu"};
    if (!tail.defined() && T >= W && can_convolve(u, weights)) {
      tail = u.narrow(1, T - W + 1, W - 1);
      return convolve(u, weights);
    }
    if (!tail.defined()) tail = at::zeros({u.size(0), W - 1, u.size(2)}, u.options());
    const at::Tensor all = at::cat({tail.to(u.scalar_type()), u}, 1);
    tail = all.narrow(1, T, W - 1);
    at::Tensor sum = all.narrow(1, 0, T) * weight.select(1, 0);
    for (int64_t j = 1; j < W; ++j) sum = sum + all.narrow(1, j, T) * weight.select(1, j);
    if (bias.defined()) sum = sum + bias;
    return (weights.silu ? at::silu(sum) : sum).to(u.scalar_type());
  });
}

ShortConv short_conv(
    torch::nn::Module& m, const std::string& name, int64_t channels, const ShortConvOptions& o
) {
  ShortConv conv;
  if (o.kernel == 0) return conv;
  const Initial own(name);
  const double bound = 1 / std::sqrt(double(o.kernel));
  conv.activation = o.activation;
  conv.weight =
      m.register_parameter(name + "_weight", uniform({channels, o.kernel}, -bound, bound));
  if (o.bias) conv.bias = m.register_parameter(name + "_bias", uniform({channels}, -bound, bound));
  return conv;
}

}  // namespace horner
