#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "nn/short_conv.cuh"
#include "nn/short_conv.h"

namespace horner {
namespace {

cuda::Conv problem(const std::vector<ConvPart>& parts, const ConvWeights& w) {
  const at::Tensor& first = parts[0].x;
  cuda::Conv p{};
  p.B = first.size(0);
  p.T = first.size(1);
  p.C = w.weight.size(0);
  p.W = int(w.weight.size(1));
  p.bf16 = first.scalar_type() == at::kBFloat16;
  p.silu = w.silu;
  p.weight = w.weight.const_data_ptr<float>();
  p.bias = w.bias.defined() ? w.bias.const_data_ptr<float>() : nullptr;
  p.parts = int(parts.size());
  int channel = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& x = parts[i].x;
    cuda::ConvPart& part = p.part[i];
    part.C = int(x.size(2));
    part.first = channel;
    part.unit = int(parts[i].unit);
    part.row = x.stride(0);
    part.token = int(x.stride(1));
    part.x = x.const_data_ptr();
    channel += part.C;
  }
  return p;
}

std::vector<at::Tensor> empty_parts(const std::vector<ConvPart>& parts) {
  std::vector<at::Tensor> y;
  for (const ConvPart& part : parts) y.push_back(at::empty(part.x.sizes(), part.x.options()));
  return y;
}

std::vector<at::Tensor> forward(const std::vector<ConvPart>& parts, const ConvWeights& w) {
  const at::Device device = parts[0].x.device();
  const c10::cuda::CUDAGuard guard(device);
  cuda::Conv p = problem(parts, w);
  const std::vector<at::Tensor> y = empty_parts(parts);
  for (size_t i = 0; i < y.size(); ++i) p.part[i].y = y[i].mutable_data_ptr();
  C10_CUDA_CHECK(cuda::conv_forward(p, at::cuda::getCurrentCUDAStream(device.index())));
  return y;
}

ConvGrads backward(
    const std::vector<ConvPart>& parts, const ConvWeights& w, const std::vector<at::Tensor>& dy
) {
  const at::Device device = parts[0].x.device();
  const c10::cuda::CUDAGuard guard(device);
  cuda::Conv p = problem(parts, w);
  ConvGrads g;
  g.dx = empty_parts(parts);
  g.dweights = at::empty({cuda::conv_sums(p), p.W + 1, p.C}, w.weight.options());
  p.dweights = g.dweights.mutable_data_ptr<float>();
  for (size_t i = 0; i < parts.size(); ++i) {
    p.part[i].dy = dy[i].const_data_ptr();
    p.part[i].dx = g.dx[i].mutable_data_ptr();
  }
  C10_CUDA_CHECK(cuda::conv_backward(p, at::cuda::getCurrentCUDAStream(device.index())));
  return g;
}

}  // namespace

ConvKernels cuda_conv_kernels() { return {forward, backward}; }

}  // namespace horner
