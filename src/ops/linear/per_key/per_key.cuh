// `linear` with a decay per key, level 2: chunks of 64 tokens, mma.sync in bf16, any GPU from sm_80 on.
//
//   states     S' = diag(e^{G_C}) S + (K * e^{G_C-G})^T V       one sweep over time; stores every S, bf16
//              in reverse Z' = diag(e^{G_C}) Z + (Q * e^G)^T dO
//   output     O  = (Q * e^G) S + A V                           every chunk by itself
//              A_ts = sum_c q_tc k_sc e^{G_tc-G_sc}, s <= t
//   gradient   dV = A^T dO + (K * e^{G_C-G}) Z                  every chunk by itself; dA_ts = do_t.v_s
//              dq_t = e^{G_t} * (do_t S^T)    + sum_{s<=t} dA_ts e^{G_t-G_s} * k_s
//              dk_s = e^{G_C-G_s} * (v_s Z^T) + sum_{t>=s} dA_ts e^{G_t-G_s} * q_t
//              dg_i = sum_{t>=i} u_t + sum_{s<i} kappa_s + e^{G_C} * rowsum(S * Z)
//              kappa = k * (part of dk from Z); u = q * dq - k * (the other part), without the terms t = s
//
// A and its gradient are computed by halves: see cuda/key_decays.cuh. A stripe is 16 tokens, a slice is 32 keys.
#pragma once

#include "cuda/key_decays.cuh"
#include "ops/linear/linear.cuh"

namespace horner::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;

// Loads 64 tokens of one head, kWidth columns, into tiles of 64 columns; zeros outside.
template <int kWidth>
__device__ void load_tokens(
    uint32_t to, const Rows& x, const Chunk& c, const Heads& h, int width, const Place& me
) {
  constexpr int kUnits = kWidth / 8,
                kApart = kThreads / kUnits;  // rows at once: a multiple of 8, so a thread's
  const int row = me.thread / kUnits, unit = me.thread % kUnits;  // rows have the same swizzle
  const bool inside = unit * 8 < width;
  const __nv_bfloat16 *first = at<__nv_bfloat16>(x, c, h), *from = first + row * x.t + unit * 8;
  to += (unit / 8) * kTileBytes + tile_offset(row, unit % 8);
#pragma unroll
  for (int n = 0; n < 64 / kApart; ++n) {
    const bool valid = inside && row + kApart * n < c.rows;
    copy_async(to + n * kApart * 128, valid ? from : first, valid);
    from += kApart * x.t;
  }
}

// Offset in a state (keys, kWidth) in shared memory: tiles of 64 columns. A product reads pairs of rows that lie eight keys
// apart (lane i has keys 8 i .. 8 i + 7); the swizzle spreads them over the banks.
__device__ inline uint32_t state_offset(int key, int unit) {
  return uint32_t(key * 128 + ((unit ^ (((key >> 3 & 3) << 1) | (key & 1))) << 4));
}

template <int kWidth>
__device__ void load_state(uint32_t to, const void* from, int keys, const Place& me) {
  constexpr int kUnits = kWidth / 8, kApart = kThreads / kUnits;
  const int key = me.thread / kUnits, unit = me.thread % kUnits;
  const unsigned char* source = static_cast<const unsigned char*>(from) + me.thread * 16;
  to += (unit / 8) * keys * 128;
  for (int first = 0; first < keys; first += kSlice) {
#pragma unroll
    for (int n = 0; n < kSlice / kApart; ++n) {
      copy_async(to + first * 128 + state_offset(key + kApart * n, unit % 8), source, true);
      source += kThreads * 16;
    }
  }
}

// Y += the rows of all slices (operands, `stride` apart) times a state: 16 tokens, 64 columns.
__device__ inline void multiply_state(
    float (&y)[8][4], const uint4* rows, int stride, uint32_t tile, int slices, const Place& me
) {
  const int half = me.lane / 8 % 2, row = me.lane % 8;
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint4 own = rows[stride * s + 32 * step + me.lane];
      const uint32_t a[4] = {own.x, own.y, own.z, own.w};
      const int key = kSlice * s + 8 * (row / 2) + 4 * step + 2 * half + row % 2;
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        uint32_t b[4];
        load_matrices_transposed(b, tile + state_offset(key, n + me.lane / 16));
        multiply(y[n], a, b[0], b[1]);
        multiply(y[n + 1], a, b[2], b[3]);
      }
    }
  }
}

// Y += weights (16 x 16 tokens) times the values of one stripe: 64 columns.
__device__ inline void multiply_values(
    float (&y)[8][4], const uint32_t (&a)[4], uint32_t tile, int stripe, const Place& me
) {
  const int row = 16 * stripe + me.lane % 16;
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
    uint32_t b[4];
    load_matrices_transposed(b, tile + tile_offset(row, n + me.lane / 16));
    multiply(y[n], a, b[0], b[1]);
    multiply(y[n + 1], a, b[2], b[3]);
  }
}

// Stores 16 rows of 64 columns through 16 rows of shared memory that belong to the warp.
__device__ inline void store_rows(
    const float (&y)[8][4],
    float scale,
    unsigned char* own,  // of 128 bytes each
    const Rows& to,
    bool wide,
    const Chunk& c,
    const Heads& h,
    int first_column,
    int width,
    const Place& me
) {
  const int first = 16 * me.warp;
  if (wide) {
    float* rows = at<float>(to, c, h) + first_column;
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      const int row = first + me.r + 8 * (e % 2), column = 8 * (e / 2) + 2 * me.i;
      if (row < c.rows && first_column + column < width) {
        *reinterpret_cast<float2*>(rows + row * to.t + column) = {
            y[e / 2][2 * (e % 2)] * scale, y[e / 2][2 * (e % 2) + 1] * scale};
      }
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    const int row = me.r + 8 * (e % 2);
    *reinterpret_cast<uint32_t*>(own + tile_offset(row, e / 2) + 4 * me.i) =
        pack(y[e / 2][2 * (e % 2)] * scale, y[e / 2][2 * (e % 2) + 1] * scale);
  }
  __syncwarp();
  __nv_bfloat16* rows = at<__nv_bfloat16>(to, c, h) + first_column;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int row = 4 * n + me.lane / 8, unit = me.lane % 8;
    const uint4 value = *reinterpret_cast<const uint4*>(own + tile_offset(row, unit));
    if (first + row < c.rows && first_column + 8 * unit < width)
      *reinterpret_cast<uint4*>(rows + int64_t(first + row) * to.t + 8 * unit) = value;
  }
  __syncwarp();
}

}  // namespace
}  // namespace horner::cuda
