#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "nn/short_conv.cuh"
#include "nn/short_conv.h"

namespace horner {
namespace {

cuda::Conv problem(const at::Tensor& x, const ConvWeights& w) {
  cuda::Conv p{};
  p.B = x.size(0);
  p.T = x.size(1);
  p.C = x.size(2);
  p.W = int(w.weight.size(1));
  p.bf16 = x.scalar_type() == at::kBFloat16;
  p.silu = w.silu;
  p.weight = w.weight.const_data_ptr<float>();
  p.bias = w.bias.const_data_ptr<float>();
  p.x = x.const_data_ptr();
  return p;
}

void forward(const at::Tensor& x, const ConvWeights& w, at::Tensor& y) {
  const c10::cuda::CUDAGuard device(x.device());
  cuda::Conv p = problem(x, w);
  p.y = y.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::conv_forward(p, at::cuda::getCurrentCUDAStream(x.device().index())));
}

at::Tensor backward(
    const at::Tensor& x, const ConvWeights& w, const at::Tensor& dy, at::Tensor& dx
) {
  const c10::cuda::CUDAGuard device(x.device());
  cuda::Conv p = problem(x, w);
  const at::Tensor parts =
      at::empty({cuda::conv_parts(p), p.W + 1, p.C}, x.options().dtype(at::kFloat));
  p.dy = dy.const_data_ptr();
  p.dx = dx.mutable_data_ptr();
  p.dweights = parts.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::conv_backward(p, at::cuda::getCurrentCUDAStream(x.device().index())));
  return parts;
}

}  // namespace

ConvKernels cuda_conv_kernels() { return {forward, backward}; }

}  // namespace horner
