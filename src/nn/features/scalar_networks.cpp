#include "nn/features/scalar_networks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/memory.h"

namespace horner {
namespace {

constexpr int64_t kMost = 1024, kMostNetworks = 16, kMostShift = 32;  // R E; R; a divisor of it

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Maybe = std::optional<at::Tensor>;

class Apply : public torch::autograd::Function<Apply> {
 public:
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& u,
      const at::Tensor& f1,
      const at::Tensor& b1,
      const at::Tensor& f2,
      const at::Tensor& b2,
      const Maybe& shift,
      bool positive,
      double scale
  ) {
    std::vector<int64_t> sizes = u.sizes().vec();
    sizes.push_back(b2.size(0));
    at::Tensor y = at::empty(sizes, u.options()), tables;
    const at::Tensor added = shift ? *shift : at::Tensor();
    network_kernels().forward(u, {f1, b1, f2, b2, added, positive, scale}, y, tables);
    ctx->save_for_backward({u, f1, b1, f2, b2, added, tables});
    ctx->saved_data["positive"] = positive;
    ctx->saved_data["scale"] = scale;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto x = ctx->get_saved_variables();
    const Networks networks{
        x[1],
        x[2],
        x[3],
        x[4],
        x[5],
        ctx->saved_data["positive"].toBool(),
        ctx->saved_data["scale"].toDouble()};
    const NetworkGrads d = network_kernels().backward(x[0], networks, x[6], dy[0].contiguous());
    return {d.du, d.f1, d.b1, d.f2, d.b2, d.shift, at::Tensor(), at::Tensor()};
  }
};

bool single(const at::Tensor& x) { return x.scalar_type() == at::kFloat; }

}  // namespace

NetworkKernels& network_kernels() {
  static NetworkKernels kernels;
  return kernels;
}

bool can_apply(const at::Tensor& u, const Networks& n) {
  const bool shifts = !n.shift.defined() || (single(n.shift) && n.shift.size(0) == u.size(-1) &&
                                             kMostShift % n.shift.size(0) == 0);
  return u.is_cuda() && has_memory(u) && (single(u) || u.scalar_type() == at::kBFloat16) &&
         network_kernels().forward != nullptr && u.numel() > 0 && n.f2.numel() <= kMost &&
         n.f2.size(0) <= kMostNetworks && single(n.f1) && single(n.b1) && single(n.f2) &&
         single(n.b2) && shifts;
}

at::Tensor apply_networks(const at::Tensor& u, const Networks& n) {
  const auto whole = [&](const at::Tensor& x) { return x.expand_as(n.f2).contiguous(); };
  return Apply::apply(
      u.contiguous(),
      whole(n.f1),
      whole(n.b1),
      n.f2.contiguous(),
      n.b2.contiguous(),
      n.shift.defined() ? Maybe(n.shift.contiguous()) : std::nullopt,
      n.positive,
      n.scale
  );
}

}  // namespace horner
