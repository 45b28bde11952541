#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include "core/check.h"
#include "cuda/tensors.h"
#include "nn/position/rotate.cuh"
#include "nn/position/rotate.h"

namespace horner {
namespace {

void rotate(
    const std::vector<at::Tensor>& x,
    const at::Tensor& c,
    const at::Tensor& s,
    bool back,
    const std::vector<at::Tensor>& y
) {
  if (x[0].numel() == 0) return;
  const c10::cuda::CUDAGuard device(x[0].device());
  cuda::Rotate p;
  p.B = x[0].size(0);
  p.T = x[0].size(1);
  p.P = int(x[0].size(3) / 2);
  p.A = int(c.size(2));
  p.bf16 = x[0].scalar_type() == at::kBFloat16;
  p.per_row = c.size(0) > 1;
  p.octets = p.P % 8 == 0;
  p.sign = back ? -1.0f : 1.0f;
  p.c = c.const_data_ptr<float>();
  p.s = s.const_data_ptr<float>();
  std::vector<at::Tensor> read;  // keeps copies alive
  for (size_t i = 0; i < x.size(); ++i) {
    read.push_back(readable(x[i], p.octets));
    cuda::RotateSide& side = p.sides[i];
    side.x = read[i].const_data_ptr();
    side.y = y[i].mutable_data_ptr();
    side.b = read[i].stride(0);
    side.t = read[i].stride(1);
    side.h = read[i].stride(2);
    side.H = int(x[i].size(2));
    side.r = side.H / p.A;
  }
  C10_CUDA_CHECK(cuda::rotate(p, at::cuda::getCurrentCUDAStream(x[0].device().index())));
}

bool captured() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

}  // namespace

RotateKernels cuda_rotate_kernels() { return {rotate, captured}; }

}  // namespace horner
