// Parameters of the fused kernels (fused.h has the equations).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

// Blocks of a backward, each of which sums the weights' gradients of its rows. A multiple of what 132 multiprocessors hold
// at 2, 3 or 4 blocks each, so that the last ones do not run alone.
constexpr int kMostRowBlocks = 132 * 12;
inline int row_blocks(int64_t rows, int n) {
  int L = 8;  // threads of a row
  while (L * 8 < n) L *= 2;
  const int64_t at_once = L > 256 ? 1 : 256 / L, blocks = (rows + at_once - 1) / at_once;
  return blocks < kMostRowBlocks ? int(blocks) : kMostRowBlocks;
}

struct AddNormCall {
  int64_t rows = 0;
  int n = 0;
  bool bf16 = false;           // y, norm, dnorm and dy; x, sum, dsum and dx are fp32
  float eps = 0, inverse = 0;  // inverse: 1 / n
  const float *x = nullptr, *weight = nullptr, *dsum = nullptr;
  const void *y = nullptr, *dnorm = nullptr;
  float *sum = nullptr, *r = nullptr, *dx = nullptr, *dweight = nullptr;
  void *norm = nullptr, *dy = nullptr;
};
cudaError_t add_norm_forward(const AddNormCall&, cudaStream_t);
cudaError_t add_norm_backward(const AddNormCall&, cudaStream_t);
constexpr int kWidestRow = 4096;

struct GatedNormCall {
  int64_t rows = 0;
  int n = 0, heads = 1;  // heads: rows of the weight
  bool bf16 = false, layer = false;
  int act = 0;                                  // Gate
  int64_t gate_row = 0;                         // stride of the gate's rows, of skip_norm
  float eps = 0, inverse = 0;                   // inverse: 1 / n
  const float *weight = nullptr, *D = nullptr;  // D: skip_norm
  const void *x = nullptr, *gate = nullptr, *u = nullptr, *dy = nullptr;
  void *y = nullptr, *dx = nullptr, *dgate = nullptr, *du = nullptr;
  float *dweight = nullptr, *dD = nullptr;  // (row_blocks, heads, n)
};
cudaError_t gated_norm_forward(const GatedNormCall&, cudaStream_t);
cudaError_t gated_norm_backward(const GatedNormCall&, cudaStream_t);
bool gated_norm_takes(int n, int heads);
cudaError_t skip_norm_forward(const GatedNormCall&, cudaStream_t);
cudaError_t skip_norm_backward(const GatedNormCall&, cudaStream_t);

struct SwigluCall {
  int64_t count = 0;              // numbers, a multiple of 8
  int64_t width = 0, stride = 0;  // forward: rows of a and b, and from one to the next; 0: no gaps
  bool bf16 = false;
  const void *a = nullptr, *b = nullptr, *dy = nullptr;
  void *y = nullptr, *da = nullptr, *db = nullptr;
};
cudaError_t swiglu_forward(const SwigluCall&, cudaStream_t);
cudaError_t swiglu_backward(const SwigluCall&, cudaStream_t);

}  // namespace horner::cuda
