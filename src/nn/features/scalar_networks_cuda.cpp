#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "nn/features/scalar_networks.cuh"
#include "nn/features/scalar_networks.h"

namespace horner {
namespace {

cuda::ScalarNetworks problem(const at::Tensor& u, const Networks& x) {
  cuda::ScalarNetworks p{};
  p.n = u.numel();
  p.R = int(x.f2.size(0));
  p.E = int(x.f2.size(1));
  p.u = u.const_data_ptr<float>();
  p.f1 = x.f1.const_data_ptr<float>();
  p.b1 = x.b1.const_data_ptr<float>();
  p.f2 = x.f2.const_data_ptr<float>();
  p.b2 = x.b2.const_data_ptr<float>();
  return p;
}

void forward(const at::Tensor& u, const Networks& x, at::Tensor& y) {
  const c10::cuda::CUDAGuard device(u.device());
  cuda::ScalarNetworks p = problem(u, x);
  p.y = y.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::networks_forward(p, at::cuda::getCurrentCUDAStream(u.device().index())));
}

at::Tensor backward(const at::Tensor& u, const Networks& x, const at::Tensor& dy, at::Tensor& du) {
  const c10::cuda::CUDAGuard device(u.device());
  cuda::ScalarNetworks p = problem(u, x);
  const at::Tensor sums = at::empty({cuda::network_parts(p), 3, x.f2.numel()}, u.options());
  p.dy = dy.const_data_ptr<float>();
  p.du = du.mutable_data_ptr<float>();
  p.sums = sums.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::networks_backward(p, at::cuda::getCurrentCUDAStream(u.device().index())));
  return sums;
}

}  // namespace

NetworkKernels cuda_network_kernels() { return {forward, backward}; }

}  // namespace horner
