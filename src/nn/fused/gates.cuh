// Parameters of the kernels of gates.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

struct DecayCall {
  int64_t rows = 0;
  int n = 0;
  bool bf16 = false;  // z, k and their gradients; g and dg are fp32
  float sign = 1, scale = 1;
  const float *b = nullptr, *c = nullptr, *dg = nullptr;
  const void *z = nullptr, *dk = nullptr;            // dk null: no keys
  float *g = nullptr, *db = nullptr, *dc = nullptr;  // db, dc: (row_blocks,n) or null
  void *k = nullptr, *dz = nullptr;                  // k null: not wanted
};
cudaError_t decay_forward(const DecayCall&, cudaStream_t);
cudaError_t decay_backward(const DecayCall&, cudaStream_t);

struct Elu1Call {
  int64_t count = 0;  // numbers, a multiple of 8
  bool bf16 = false;
  const void *z = nullptr, *dy = nullptr;
  void* out = nullptr;  // y; dz where dy is given
};
cudaError_t elu1(const Elu1Call&, cudaStream_t);

struct ScaleCall {
  int64_t rows = 0;
  int n = 0;
  bool bf16 = false;
  const void *x = nullptr, *dy = nullptr;
  const float* s = nullptr;  // (rows)
  void *y = nullptr, *dx = nullptr;
  float* ds = nullptr;
};
cudaError_t scale_forward(const ScaleCall&, cudaStream_t);
cudaError_t scale_backward(const ScaleCall&, cudaStream_t);

struct AugmentCall {
  int64_t rows = 0;
  int K = 0, V = 0, heads = 1;
  bool bf16 = false;
  const void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *dy = nullptr;
  const float* a = nullptr;  // (heads,K)
  void *y = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* da = nullptr;  // (row_blocks,heads,K)
  float offset = 0;
};
cudaError_t augment_forward(const AugmentCall&, cudaStream_t);
cudaError_t augment_backward(const AugmentCall&, cudaStream_t);
bool augment_takes(int K, int V, int heads);

}  // namespace horner::cuda
