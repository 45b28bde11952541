#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "nn/fused/pointwise.cuh"
#include "nn/fused/pointwise.h"

namespace horner {
namespace {

void run(Pointwise f, const PointwiseTensors& t, bool backward) {
  const at::Tensor& last = t.x.back();
  const c10::cuda::CUDAGuard device(last.device());
  cuda::PointwiseCall p;
  p.n = int(last.size(-1));
  p.rows = last.numel() / p.n;
  p.parts = int(pointwise_parts(p.rows, p.n));
  p.bf16 = last.scalar_type() == at::kBFloat16;
  p.backward = backward;
  for (size_t j = 0; j < t.x.size(); ++j) {
    p.x[j] = t.x[j].const_data_ptr();
    p.row_of[j] = t.x[j].stride(-2);
  }
  for (size_t j = 0; j < t.c.size(); ++j) p.c[j] = t.c[j].const_data_ptr<float>();
  if (t.row.defined()) p.row = t.row.const_data_ptr<float>();
  for (size_t j = 0; j < t.y.size(); ++j) p.y[j] = t.y[j].data_ptr();
  for (size_t j = 0; j < t.dx.size(); ++j) p.dx[j] = t.dx[j].mutable_data_ptr();
  for (size_t j = 0; j < t.dc.size(); ++j) p.dc[j] = t.dc[j].mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::pointwise(f, p, at::cuda::getCurrentCUDAStream(last.device().index())));
}

}  // namespace

PointwiseKernel cuda_pointwise_kernel() { return run; }

}  // namespace horner
