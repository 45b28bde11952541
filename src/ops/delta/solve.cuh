// `delta`: the inverse A = (I + L)^-1 of a chunk, L strictly lower triangular. In blocks of 16 x 16 tokens:
//   A_JJ = (I + L_JJ)^-1 by substitution, in fp32
//   A_IJ = -A_II sum_{J<=K<I} L_IK A_KJ for I > J, by products whose operands are sums of two bf16
// A warp owns the blocks of column J.
//
// Memory: a block's shared memory with  float L[64][68];  float diagonal[4][16][18] (A_JJ);  __nv_bfloat16 inverse[64][64] (A).
#pragma once

#include "ops/delta/chunked.cuh"

namespace horner::cuda {
namespace {

// Two numbers as a sum of two pairs of bf16.
struct Split {
  uint32_t high, low;
};
__device__ inline Split split(float x, float y) {
  const uint32_t high = pack(x, y);
  return {high, pack(x - low_half(high), y - high_half(high))};
}

// A block of 16 x 16, transposed, as an operand a.
struct Operand {
  uint32_t high[4], low[4];
  __device__ void set(int e, float x, float y) {
    const Split two = split(x, y);
    high[e] = two.high;
    low[e] = two.low;
  }
};

// d += a B^T, the rows of B in memory. d (16 x 16) is two tiles of 8 columns.
template <int kStride>
__device__ void add_product(float (&d)[2][4], const Operand& a, const float* B, const Place& me) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float* row = B + (8 * n + me.r) * kStride + 2 * me.i;
    const Split x = split(row[0], row[1]), y = split(row[8], row[9]);
    multiply(d[n], a.high, x.high, y.high);
    multiply(d[n], a.high, x.low, y.low);
    multiply(d[n], a.low, x.high, y.high);
  }
}

// A_JJ: lane c (and c + 16) computes column c, x_t = (t == c) - sum_{s<t} L_ts x_s.
template <class Memory>
__device__ void solve_diagonal(Memory& m, int J, const Place& me) {
  const int c = me.lane % 16;
  float x[16];
#pragma unroll
  for (int t = 0; t < 16; ++t) {
    float sum[2] = {t == c ? 1.f : 0.f, 0.f};
#pragma unroll
    for (int s = 0; s < t; ++s) sum[s % 2] -= m.L[16 * J + t][16 * J + s] * x[s];
    x[t] = sum[0] + sum[1];
    if (me.lane < 16) {
      m.diagonal[J][t][c] = x[t];
      m.inverse[16 * J + t][16 * J + c] = __float2bfloat16(x[t]);
    }
  }
}

// A_IJ for I > J, transposed: A_IJ^T = -(sum_K A_KJ^T L_IK^T) A_II^T.
template <class Memory>
__device__ void solve_below(Memory& m, int J, const Place& me) {
  for (int t = me.lane / 2; t < 16 * J; t += 16)  // above the diagonal: 0
    *reinterpret_cast<uint4*>(&m.inverse[t][16 * J + 8 * (me.lane % 2)]) = uint4{0, 0, 0, 0};
  Operand a[3];  // A_KJ^T, K = J, J + 1, ..
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int j = me.r + 8 * (e % 2), k = 2 * me.i + 8 * (e / 2);
    a[0].set(e, m.diagonal[J][k][j], m.diagonal[J][k + 1][j]);
  }
#pragma unroll
  for (int d = 1; d < 4; ++d) {
    const int I = J + d;
    if (I > 3) return;
    float x[2][4] = {}, y[2][4] = {};
#pragma unroll
    for (int n = 0; n < d; ++n) add_product<68>(x, a[n], &m.L[16 * I][16 * (J + n)], me);
    Operand sum;
#pragma unroll
    for (int e = 0; e < 4; ++e) sum.set(e, -x[e / 2][2 * (e % 2)], -x[e / 2][2 * (e % 2) + 1]);
    add_product<18>(y, sum, &m.diagonal[I][0][0], me);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* two = y[e / 2] + 2 * (e % 2);
      if (d < 3) a[d].set(e, two[0], two[1]);
      const int t = 16 * I + 8 * (e / 2) + me.r, s = 16 * J + 8 * (e % 2) + 2 * me.i;
      *reinterpret_cast<uint32_t*>(&m.inverse[t][s]) = transposed(pack(two[0], two[1]));
    }
  }
}

}  // namespace
}  // namespace horner::cuda
