// Recall examples made on the GPU: the numbers of the CPU, from the same words of Philox. The waiting times of a race are
// computed by the GPU's logarithm, so two places would change their order only if their times agree to 1e-15.
#pragma once

#include "tasks/task.h"

namespace horner {

struct RecallOnGpu {
  enum class Kind { mqar, comp, forget } kind = Kind::mqar;
  int64_t T = 0, pairs = 0, rewrites = 0, vocabulary = 0, seed = 0;
  bool noise = false;
  std::vector<double> weights;  // of the places of questions

  bool possible(
  ) const;  // whether libhorner_cuda.so is here and an example fits into a block's memory
  GpuBatch make(Split split, const at::Tensor& indices) const;
};

// What libhorner_cuda.so provides.
using RecallKernel = GpuBatch (*)(const RecallOnGpu&, Split, const at::Tensor& indices);
RecallKernel& recall_kernel();
RecallKernel cuda_recall_kernel();  // in libhorner_cuda.so

}  // namespace horner
