// Gradients of products with a decay per key (key_decays.cuh): W M at each level, W the gradients of the products.
#pragma once

#include "cuda/key_decays.cuh"

namespace horner::cuda {
namespace {

// W_ts = W_st = factor do_t.v_s for s < t, as A operands. Rows: stripe w. Columns: stripes w (own), w ^ 1 (near), w ^ 2 and
// w ^ 3 (far). same: W_tt of the thread's two rows.
struct Symmetric {
  uint32_t own[4], near[4], far[2][4];
  float same[2];

  template <int kWidth>
  __device__ void compute(uint32_t v, uint32_t out, float factor, const Place& me) {
    float lower[2][4] = {}, upper[2][4] = {}, across[3][2][4] = {};  // dO V^T, V dO^T
    const int mine = 16 * me.warp + me.lane % 16, other = 8 * (me.lane / 16) + me.lane % 8;
    const auto add = [&](float(&d)[2][4], const uint32_t(&a)[4], uint32_t rows) {
      uint32_t b[4];
      load_matrices(b, rows);
      multiply(d[0], a, b[0], b[1]);
      multiply(d[1], a, b[2], b[3]);
    };
#pragma unroll 1
    for (int step = 0; step < kWidth / 16; ++step) {
      const uint32_t tile = step / 4 * kTileBytes;
      const int unit = step % 4 * 2 + me.lane / 8 % 2;
      uint32_t a[4], av[4];
      load_matrices(a, out + tile + tile_offset(mine, step % 4 * 2 + me.lane / 16));
      load_matrices(av, v + tile + tile_offset(mine, step % 4 * 2 + me.lane / 16));
      add(lower, a, v + tile + tile_offset(16 * me.warp + other, unit));
      add(upper, av, out + tile + tile_offset(16 * me.warp + other, unit));
#pragma unroll
      for (int n = 1; n < 4; ++n) {
        const int stripe = me.warp ^ n;
        const bool early = stripe < me.warp;
        const uint32_t rows[4] = {
            early ? a[0] : av[0], early ? a[1] : av[1], early ? a[2] : av[2], early ? a[3] : av[3]};
        add(across[n - 1], rows, (early ? v : out) + tile + tile_offset(16 * stripe + other, unit));
      }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      lower[e / 4][e % 4] *= factor;
      upper[e / 4][e % 4] *= factor;
#pragma unroll
      for (int n = 0; n < 3; ++n) across[n][e / 4][e % 4] *= factor;
    }
    const int holder = (me.lane & 28) | (me.r >> 1);
    same[0] = __shfl_sync(~0u, me.r & 1 ? lower[0][1] : lower[0][0], holder);
    same[1] = __shfl_sync(~0u, me.r & 1 ? lower[1][3] : lower[1][2], holder);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = 2 * me.i + e;
      if (column >= me.r) lower[0][e] = column == me.r ? 0.f : upper[0][e];
      if (column >= me.r) lower[1][2 + e] = column == me.r ? 0.f : upper[1][2 + e];
      lower[1][e] = upper[1][e];
    }
    to_operand(own, lower);
    to_operand(near, across[0]);
    to_operand(far[0], across[1]);
    to_operand(far[1], across[2]);
  }

  // The pairs of level `half` < 8 in this stripe: two blocks on the diagonal, all other pairs masked.
  __device__ uint2 part(int half, const Place& me) const {
    const int apart = me.r ^ (2 * me.i);  // of the first column; the second differs in bit 0
    const uint32_t mask =
        (meet(apart, half) ? 0xffffu : 0u) | (meet(apart ^ 1, half) ? 0xffff0000u : 0u);
    return {own[0] & mask, own[3] & mask};
  }
};

// d += W M for 16 rows of M and all keys of a slice.
__device__ void multiply_level(
    Values& d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, const Fragment& m
) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t b0 = transposed(m.x[0][j]), b1 = transposed(m.x[1][j]);
    multiply(d[j], a0, a1, a2, a3, b0, b1);
  }
}

// Stores 8 keys of rows r and r + 8, as bf16 or fp32 (wide).
template <class Params>
__device__ void store_keys(
    const Values& x,
    float scale,
    const Rows& to,
    bool wide,
    const Params& p,
    const Chunk& c,
    const Heads& h,
    int slice,
    const Place& me
) {
  const int key = kSlice * slice + 8 * me.i;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int64_t row = 16 * me.warp + me.r + 8 * n;
    if (row >= c.rows || key >= p.K) continue;
    float y[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) y[e] = x[e / 2][2 * n + e % 2] * scale;
    if (wide) {
      store_eight(at<float>(to, c, h) + row * to.t + key, y);
    } else {
      *reinterpret_cast<uint4*>(at<__nv_bfloat16>(to, c, h) + row * to.t + key) = {
          pack(y[0], y[1]), pack(y[2], y[3]), pack(y[4], y[5]), pack(y[6], y[7])};
    }
  }
}

}  // namespace
}  // namespace horner::cuda
