// Parameters of the kernels of pointwise.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "nn/fused/functions.h"

namespace horner::cuda {

struct PointwiseCall {
  int64_t rows = 0;
  int n = 0, parts = 0;  // parts: blocks that share the rows
  bool bf16 = false, backward = false;
  const void* x[3] = {};
  int64_t row_of[3] = {};      // strides of x, in numbers
  const float* c[3] = {};      // (n)
  const float* row = nullptr;  // (rows)
  void* y[2] = {};             // results; of a backward their gradients
  void* dx[3] = {};            // (rows,n)
  float* dc[3] = {};           // (parts,n)
};
cudaError_t pointwise(Pointwise f, const PointwiseCall&, cudaStream_t);

}  // namespace horner::cuda
