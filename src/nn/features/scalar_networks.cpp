#include "nn/features/scalar_networks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/memory.h"

namespace horner {
namespace {

constexpr int64_t kMost = 1024, kMostNetworks = 16;  // R E, whose sums a block keeps; R

class Apply : public torch::autograd::Function<Apply> {
 public:
  static at::Tensor forward(
      torch::autograd::AutogradContext* ctx,
      const at::Tensor& u,
      const at::Tensor& f1,
      const at::Tensor& b1,
      const at::Tensor& f2,
      const at::Tensor& b2
  ) {
    std::vector<int64_t> sizes = u.sizes().vec();
    sizes.push_back(b2.size(0));
    at::Tensor y = at::empty(sizes, u.options());
    network_kernels().forward(u, {f1, b1, f2, b2}, y);
    ctx->save_for_backward({u, f1, b1, f2, b2});
    return y;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads
  ) {
    const auto x = ctx->get_saved_variables();
    const at::Tensor dy = grads[0].contiguous(), &f2 = x[3];
    at::Tensor du = at::empty_like(x[0]);
    const at::Tensor sums =
        network_kernels().backward(x[0], {x[1], x[2], f2, x[4]}, dy, du).sum(0);  // (3, R E)
    const auto of = [&](int64_t i) { return sums[i].view_as(f2); };
    return {du, f2 * of(0), f2 * of(1), of(2), dy.flatten(0, -2).sum(0)};
  }
};

}  // namespace

NetworkKernels& network_kernels() {
  static NetworkKernels kernels;
  return kernels;
}

bool can_apply(const at::Tensor& u, const Networks& n) {
  return u.is_cuda() && has_memory(u) && u.scalar_type() == at::kFloat &&
         network_kernels().forward != nullptr && u.numel() > 0 && n.f2.numel() <= kMost &&
         n.f2.size(0) <= kMostNetworks && n.f2.scalar_type() == at::kFloat;
}

at::Tensor apply_networks(const at::Tensor& u, const Networks& n) {
  const auto whole = [&](const at::Tensor& x) { return x.expand_as(n.f2).contiguous(); };
  return Apply::apply(
      u.contiguous(), whole(n.f1), whole(n.b1), n.f2.contiguous(), n.b2.contiguous()
  );
}

}  // namespace horner
