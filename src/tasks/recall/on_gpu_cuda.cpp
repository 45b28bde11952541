#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <cmath>

#include "core/constant.h"
#include "tasks/recall/on_gpu.cuh"
#include "tasks/recall/on_gpu.h"

namespace horner {
namespace {

GpuBatch make(const RecallOnGpu& x, Split split, const at::Tensor& indices) {
  const c10::cuda::CUDAGuard device(indices.device());
  const int64_t B = indices.size(0);
  const at::TensorOptions whole = indices.options().dtype(at::kLong);
  GpuBatch y{
      at::empty({B, x.T}, whole), at::empty({B * x.pairs}, whole), at::empty({B * x.pairs}, whole)};
  const at::Tensor weights = constant(x.weights, indices.options().dtype(at::kDouble));
  cuda::Recall p{};
  p.kind = cuda::RecallKind(int(x.kind));
  p.B = int(B);
  p.T = int(x.T);
  p.P = int(x.pairs);
  p.R = int(x.rewrites);
  p.side = int(std::lround(std::sqrt(double(x.pairs))));
  p.N = int(x.vocabulary);
  p.spaces = int(x.weights.size());
  p.noise = x.noise;
  p.seed = uint64_t(x.seed);
  p.split = uint32_t(split);
  p.weights = weights.const_data_ptr<double>();
  p.indices = indices.const_data_ptr<int64_t>();
  p.tokens = y.tokens.mutable_data_ptr<int64_t>();
  p.places = y.places.mutable_data_ptr<int64_t>();
  p.answers = y.answers.mutable_data_ptr<int64_t>();
  C10_CUDA_CHECK(cuda::make_recall(p, at::cuda::getCurrentCUDAStream(indices.device().index())));
  return y;
}

}  // namespace

RecallKernel cuda_recall_kernel() { return make; }

}  // namespace horner
