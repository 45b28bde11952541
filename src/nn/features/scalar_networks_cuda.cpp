#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "nn/features/scalar_networks.cuh"
#include "nn/features/scalar_networks.h"

namespace horner {
namespace {

cuda::ScalarNetworks problem(const at::Tensor& u, const Networks& x, const at::Tensor& tables) {
  cuda::ScalarNetworks p{};
  p.n = u.numel();
  p.shape = cuda::NetworkShape(int(x.f2.size(0)), int(x.f2.size(1)));
  p.bf16 = u.scalar_type() == at::kBFloat16;
  p.positive = x.positive;
  p.scale = float(x.scale);
  p.u = u.const_data_ptr();
  p.f1 = x.f1.const_data_ptr<float>();
  p.b1 = x.b1.const_data_ptr<float>();
  p.f2 = x.f2.const_data_ptr<float>();
  p.b2 = x.b2.const_data_ptr<float>();
  p.tables = tables.data_ptr();
  if (!x.shift.defined()) return p;
  p.shift = x.shift.const_data_ptr<float>();
  p.M = int(x.shift.numel());
  return p;
}

void forward(const at::Tensor& u, const Networks& x, at::Tensor& y, at::Tensor& tables) {
  const c10::cuda::CUDAGuard device(u.device());
  const auto stream = at::cuda::getCurrentCUDAStream(u.device().index());
  const cuda::NetworkShape shape(int(x.f2.size(0)), int(x.f2.size(1)));
  tables = at::empty({shape.bytes()}, u.options().dtype(at::kByte));
  cuda::ScalarNetworks p = problem(u, x, tables);
  p.y = y.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::networks_tables(p, stream));
  C10_CUDA_CHECK(cuda::networks_forward(p, stream));
}

NetworkGrads backward(
    const at::Tensor& u, const Networks& x, const at::Tensor& tables, const at::Tensor& dy
) {
  const c10::cuda::CUDAGuard device(u.device());
  const auto stream = at::cuda::getCurrentCUDAStream(u.device().index());
  cuda::ScalarNetworks p = problem(u, x, tables);
  p.parts = cuda::network_parts(p);
  NetworkGrads d{
      at::empty_like(u),
      at::empty_like(x.f2),
      at::empty_like(x.f2),
      at::empty_like(x.f2),
      at::empty_like(x.b2)};
  const at::Tensor sums =
      at::empty({p.parts, p.shape.groups, p.shape.R, p.shape.rows, 2}, x.f2.options());
  const at::Tensor shift_sums = at::empty({p.parts, 32}, x.f2.options());
  p.dy = dy.const_data_ptr();
  p.du = d.du.mutable_data_ptr();
  p.sums = reinterpret_cast<float2*>(sums.mutable_data_ptr<float>());
  p.shift_sums = shift_sums.mutable_data_ptr<float>();
  p.df1 = d.f1.mutable_data_ptr<float>();
  p.db1 = d.b1.mutable_data_ptr<float>();
  p.df2 = d.f2.mutable_data_ptr<float>();
  p.db2 = d.b2.mutable_data_ptr<float>();
  if (x.shift.defined()) {
    d.shift = at::empty_like(x.shift);
    p.dshift = d.shift.mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::networks_backward(p, stream));
  C10_CUDA_CHECK(cuda::networks_gradients(p, stream));
  return d;
}

}  // namespace

NetworkKernels cuda_network_kernels() { return {forward, backward}; }

}  // namespace horner
