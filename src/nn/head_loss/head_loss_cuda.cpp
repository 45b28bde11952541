#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "core/check.h"
#include "nn/head_loss/head_loss.cuh"
#include "nn/head_loss/head_loss.h"

namespace horner {
namespace {

void step(at::Tensor& l, const at::Tensor& targets, double cap, bool gradient, at::Tensor& each) {
  if (l.numel() == 0) return;
  const bool bf16 = l.scalar_type() == at::kBFloat16;
  HORNER_CHECK(
      bf16 || l.scalar_type() == at::kFloat,
      "[head] logits must be bf16 or fp32, got {}",
      c10::toString(l.scalar_type())
  );
  const c10::cuda::CUDAGuard device(l.device());
  const at::Tensor own = targets.to(at::kLong).contiguous();
  cuda::HeadLoss p;
  p.rows = l.size(0);
  p.stride = l.stride(0);
  p.V = int(l.size(1));
  p.bf16 = bf16;
  p.gradient = gradient;
  p.cap = float(cap);
  p.l = l.mutable_data_ptr();
  p.targets = own.const_data_ptr<int64_t>();
  p.each = each.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::head_loss(p, at::cuda::getCurrentCUDAStream(l.device().index())));
}

}  // namespace

LossStep cuda_loss_step() { return step; }

}  // namespace horner
