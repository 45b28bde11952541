// Kernel of head_loss.h: one step over the logits of a piece.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace horner::cuda {

struct HeadLoss {
  int64_t rows = 0, stride = 0;  // l (rows,V), `stride` numbers apart: a multiple of 8, at least V
  int V = 0;
  bool bf16 = false, gradient = false;
  float cap = 0;  // 0: none
  void* l = nullptr;
  const int64_t* targets = nullptr;  // negative: none
  float* each = nullptr;
};

cudaError_t head_loss(const HeadLoss&, cudaStream_t);

}  // namespace horner::cuda
