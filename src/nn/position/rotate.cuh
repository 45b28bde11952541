// Kernels of rotate.h: x (B,T,H,2P) -> y, contiguous, for one or two tensors of equal B, T, P; c and s (B|1,T,A,P).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace horner::cuda {

struct RotateSide {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t b = 0, t = 0, h = 0;  // strides of x
  int H = 0;                    // 0: this side is not there
  int r = 1;                    // head i has angle i / r
};

struct Rotate {
  int64_t B = 0, T = 0;
  int P = 0, A = 1;                    // pairs of a head, heads of the angles
  bool bf16 = false, per_row = false;  // x is bf16; c and s have B rows
  bool octets = false;                 // x has strides and places of whole 16 bytes, P % 8 = 0
  float sign = 1;                      // -1: rotates back
  RotateSide sides[2];
  const float *c = nullptr, *s = nullptr;
};

cudaError_t rotate(const Rotate&, cudaStream_t);

}  // namespace horner::cuda
