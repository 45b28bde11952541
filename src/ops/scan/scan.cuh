// Kernels of `scan`, real: h_t = a_t h_{t-1} + v_t, a = exp g, element by element.
//
//   backward, in reverse, with w_t = dL/dh_{t-1}:   dv_t = dh_t + w_{t+1}
//                                                   w_t  = a_t dv_t,   dg_t = w_t h_{t-1},   dh_0 = w_1
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/rows.h"

namespace horner::cuda {

// (B,T,C), contiguous; C a multiple of 8.
struct Scan {
  int64_t B = 0, T = 0, C = 0;
  Type type = Type::f32, gate = Type::f32;  // of v, h and of g: the same, or f32 for g; no f64
  const void *g = nullptr, *v = nullptr;
  void* h = nullptr;             // written forward, read backward
  const float* first = nullptr;  // (B,C) state that enters, or null
  float* last = nullptr;         // (B,C) state that leaves, or null
  const void* dh = nullptr;      // backward: gradient of h, and of the state that leaves
  const float* dlast = nullptr;
  void *dv = nullptr, *dg = nullptr;
  float* dfirst = nullptr;
};

cudaError_t scan_forward(const Scan&, cudaStream_t);
cudaError_t scan_backward(const Scan&, cudaStream_t);

}  // namespace horner::cuda
