#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "nn/position/rotate.cuh"
#include "nn/position/rotate.h"

namespace horner {
namespace {

void rotate(
    const at::Tensor& x, const at::Tensor& c, const at::Tensor& s, bool back, at::Tensor& y
) {
  if (x.numel() == 0) return;
  const c10::cuda::CUDAGuard device(x.device());
  cuda::Rotate p;
  p.B = x.size(0);
  p.T = x.size(1);
  p.H = x.size(2);
  p.P = x.size(3) / 2;
  p.bf16 = x.scalar_type() == at::kBFloat16;
  p.per_row = c.size(0) > 1;
  p.per_head = c.size(2) > 1;
  p.sign = back ? -1.0f : 1.0f;
  p.x = x.const_data_ptr();
  p.c = c.const_data_ptr<float>();
  p.s = s.const_data_ptr<float>();
  p.y = y.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::rotate(p, at::cuda::getCurrentCUDAStream(x.device().index())));
}

}  // namespace

RotateKernel cuda_rotate_kernel() { return rotate; }

}  // namespace horner
