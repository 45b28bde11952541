// `power` with wide keys (32 < K <= 128), order <= 2, no decay: chunks of many tokens. Inside a chunk all pairs are computed
// (parallel.cu); between chunks the state is carried. The rows of the state are in tiles of K, in another order than the op's:
//
//   tile d = 0 .. K/2:  x_j x_{(j+d) mod K}, j < K: each pair once, pairs of d = K/2 twice     then x_j, then 1
//
// So the features of a tile are a row of numbers times the same row rotated by d. Weights: c2 in tiles 0 and K/2, 2 c2 in
// the tiles between, c1 for x_j, c0 for 1. Values v~ = [v, 1, 1], padded to blocks of 72 columns.
//
//   update    S = sum_s m(k_s)^T v~_s of each chunk          backward: of q and do~
//   prefix    the state that enters each chunk, bf16         backward: the gradient of the state that leaves it
//   read      y_t = m(q_t) S                                 backward: dv~ of k and that gradient
//   contract  dx_t = d(m(x_t) S u_t) / dx_t                  backward: dq of S and do~, dk of the gradient and v~
#pragma once

#include "ops/power/power.cuh"

namespace horner::cuda {

constexpr int kWideColumns = 72;

// Rows of a state: tiles of K rows, then 64 rows of which the first is the constant.
__host__ __device__ constexpr int wide_rows(int K) { return K * (K / 2 + 2) + 64; }

struct PowerWide {
  int64_t B = 0, T = 0, H = 0;
  int K = 64;      // 64 or 128
  int blocks = 1;  // blocks of columns
  int length = 0;  // tokens of a chunk, a multiple of 256
  int chunks = 1;
  int group = 1;            // read, contract: query heads that share a state
  Rows x, u;                // bf16 (B,T,H,K), (B,T,H,columns)
  float* sums = nullptr;    // update writes (B,chunks,H,rows,columns)
  const void* S = nullptr;  // read and contract read bf16 (B,chunks,H/group,rows,columns)
  float* y = nullptr;       // read writes (B,T,H,columns)
  float* dx = nullptr;      // contract writes (B,T,H,K)
};
cudaError_t power_wide_update(const PowerWide&, cudaStream_t);
cudaError_t power_wide_read(const PowerWide&, cudaStream_t);
cudaError_t power_wide_contract(const PowerWide&, cudaStream_t);

// s = first; for each chunk: S = bf16(after W s), s += before W sums; last = s.
struct PowerPrefix {
  int64_t B = 0, heads = 0, chunks = 0, rows = 0;
  int K = 64, columns = 0, group = 1;      // group: heads of `sums` that a state sums
  float c0 = 0, c1 = 0, c2 = 0;            // W
  bool weighs_sums = false, back = false;  // W before the sum, else after it; last chunk first
  const float *sums = nullptr, *first = nullptr;
  void* S = nullptr;
  float* last = nullptr;
};
cudaError_t power_wide_prefix(const PowerPrefix&, cudaStream_t);

// o = (num + y) / den: num = (o_in + rest) / inverse from inside the chunk, y from the state, den from both.
struct PowerFinish {
  int64_t B = 0, T = 0, H = 0;
  int V = 0, columns = 0;                       // columns of y; column V is den
  int64_t length = 0, padded = 0;               // tokens of a chunk, of all chunks
  const void *o_in = nullptr, *rest = nullptr;  // bf16 (B,padded,H,V)
  const float *inverse = nullptr,
              *y = nullptr;  // (B chunks,H,length), null: 1; (B,T,H,columns), null: 0
  bool normalise = false, clamps = false;
  float eps = 0;
  void* o = nullptr;      // bf16 (B,T,H,V)
  float* kept = nullptr;  // (B,T,H,V+1): o and den; null: not wanted
};
cudaError_t power_wide_finish(const PowerFinish&, cudaStream_t);

}  // namespace horner::cuda
