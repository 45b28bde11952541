// Kernel of rotate.h: x and y (B,T,H,2P), c and s (B|1,T,H|1,P).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace horner::cuda {

struct Rotate {
  int64_t B = 0, T = 0, H = 0, P = 0;
  bool bf16 = false, per_row = false, per_head = false;  // x is bf16; c and s have B rows, H heads
  float sign = 1;                                        // -1: rotates back
  const void* x = nullptr;
  const float *c = nullptr, *s = nullptr;
  void* y = nullptr;
};

cudaError_t rotate(const Rotate&, cudaStream_t);

}  // namespace horner::cuda
