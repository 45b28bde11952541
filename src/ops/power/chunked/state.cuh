// `power`, level 2: monomials, and the state over them in the registers of a block.
//
// Features come in tiles of 8: x_i times the x_j of a block of 8 dims, which is the block of i or a later one; and the x_j
// themselves. If i and j are in the same block the pair appears twice, so W is halved there. The duplicate (1, 0) holds the
// constant 1 instead. The state has kV + 16 rows; the sum of rows kV and kV + 1 is the column of ones.
#pragma once

#include <utility>

#include "ops/power/chunked/tokens.cuh"

namespace horner::cuda {
namespace {

struct Tile {
  int i, block;  // x_i x_{8 block} .. x_i x_{8 block + 7}; i = -1: without x_i
};

template <int kK>
struct Features {
  static constexpr int kBlocks = kK / 8;
  static constexpr int kSlots =
      kBlocks * (kBlocks + 1) / 2 + 1;  // tiles of a warp: i = warp, warp + 8, ..
  static constexpr int kTiles = 8 * (kSlots - 1) + kBlocks;
  static constexpr int kStride =
      16 * kTiles + 16;  // bytes of a row of the copy, free of bank conflicts

  // The first tile of the features whose i lies in block a.
  __host__ __device__ static constexpr int first(int a) {
    int n = 0;
    for (int m = 0; m < a; ++m) n += 8 * (kBlocks - m);
    return n;
  }
  // Slot n of a warp: the block of i, and the block of j.
  __host__ __device__ static constexpr Tile slot(int n) {
    for (int a = 0; a < kBlocks; ++a) {
      if (n < kBlocks - a) return {a, a + n};
      n -= kBlocks - a;
    }
    return {-1, 0};
  }
};

// f(std::integral_constant) for 0 .. kCount - 1, unrolled: the number is known at compile time.
template <int kCount, class F>
__device__ __forceinline__ void unrolled(F&& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (f(std::integral_constant<int, kIndex>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

// --- the state: slot, tile of 16 columns (the last: ones), 4 elements of an accumulator ------------------

template <int kK, int kV>
using StateTiles = float[Features<kK>::kSlots][kV / 16 + 1][4];

template <int kK, int kV, class F>
__device__ __forceinline__ void for_registers(StateTiles<kK, kV>& S, F&& f) {
#pragma unroll
  for (int n = 0; n < Features<kK>::kSlots; ++n) {
#pragma unroll
    for (int m = 0; m <= kV / 16; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) f(S[n][m][e]);
    }
  }
}

// f(n, m, e, i, j, column) for each element [n][m][e]. Its row is the monomial x_i x_j (i = -1: x_j; i = j = -1: 1). Its
// column is one of v, or the ones (column V: the values of this lane and of lane + 4 are summed). A pair may appear twice.
template <int kK, int kV, class F>
__device__ __forceinline__ void for_state(const PowerSweep& p, const Job& job, F&& f) {
  using Of = Features<kK>;
  unrolled<Of::kSlots>([&](auto number) {
    constexpr int n = decltype(number)::value;
    constexpr Tile tile = Of::slot(n);
    const Lane at = Lane::opaque();
    if (tile.i < 0 && at.warp >= Of::kBlocks) return;
#pragma unroll
    for (int m = 0; m <= kV / 16; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool ones = m == kV / 16;
        int column = job.block * kV + 16 * m + at.g + 8 * (e / 2);
        if (ones) column = at.g == 0 && e < 2 && p.normalise ? p.V : -1;
        if (column < 0 || (!ones && column >= p.V)) continue;
        int i = tile.i < 0 ? -1 : 8 * tile.i + at.warp;
        int j = 8 * (tile.i < 0 ? at.warp : tile.block) + 2 * at.t + e % 2;
        if (i == 1 && j == 0) i = j = -1;
        if (i >= p.K || j >= p.K) continue;
        f(n, m, e, i, j, column);
      }
    }
  });
}

// The row of a monomial in the op's state (order by order, lexicographic); -1: above the op's order.
__device__ inline int monomial_at(const PowerSweep& p, int i, int j) {
  if (j < 0) return 0;
  if (i < 0) return p.order < 1 ? -1 : 1 + j;
  if (p.order < 2) return -1;
  const int a = min(i, j), b = max(i, j);
  return 1 + p.K + a * p.K - a * (a - 1) / 2 + b - a;
}
__device__ inline int feature_count(const PowerSweep& p) {
  return p.order == 0 ? 1 : p.order == 1 ? 1 + p.K : 1 + p.K + p.K * (p.K + 1) / 2;
}
__device__ inline int64_t state_at(const PowerSweep& p, int64_t head, int monomial, int column) {
  return (head * feature_count(p) + monomial) * (p.V + (p.normalise ? 1 : 0)) + column;
}
__device__ inline float weight_of(const PowerSweep& p, int i, int j) {  // W
  return j < 0 ? p.c0 : i < 0 ? p.c1 : i == j ? p.c2 : 2.f * p.c2;
}

// Where a thread's registers of a state lie in memory: (B,H,blocks,segments,registers,threads).
template <int kV>
__host__ __device__ constexpr int register_at(int n, int m, int e) {
  return ((n * (kV / 16 + 1) + m) * 4 + e) * kPowerThreads;
}
template <int kK, int kV>
__device__ float* state_slot(
    float* states, const PowerSweep& p, const Job& job, int segments = 1, int segment = 0
) {
  const int64_t at = (int64_t(job.bh) * p.blocks + job.block) * segments + segment;
  return states + at * register_at<kV>(Features<kK>::kSlots, 0, 0) + threadIdx.x;
}
template <int kK, int kV>
__device__ __forceinline__ void load_state(StateTiles<kK, kV>& S, const float* from) {
  for_registers<kK, kV>(S, [&](float& x) {
    x = *from;
    from += kPowerThreads;
  });
}
template <int kK, int kV>
__device__ __forceinline__ void store_state(StateTiles<kK, kV>& S, float* to) {
  for_registers<kK, kV>(S, [&](float x) {
    *to = x;
    to += kPowerThreads;
  });
}

// 16 tokens u~ as A operands: the values times their decays to the chunk's end, and the column of ones.
template <int kV>
__device__ __forceinline__ void load_values(
    uint32_t (&u)[kV / 16 + 1][4],
    const RowTile<kV>& rows,
    const Factors& f,
    bool scaled,
    int step,
    const Lane& at
) {
  constexpr int kM = kV / 16;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    const int token = 16 * step + 8 * (at.lane / 16) + at.lane % 8;
    load_matrices_transposed(u[m], rows.at(token, 2 * m + at.lane / 8 % 2));
  }
  const int pair = 8 * step + at.t;
  if (scaled) {
    const uint2 early = f.write[pair], late = f.write[pair + 4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) u[m][e] = weigh_pairs(u[m][e], e < 2 ? early : late);
    }
  }
  u[kM][0] = at.g < 2 ? f.ones[at.g & 1][pair] : 0u;
  u[kM][2] = at.g < 2 ? f.ones[at.g & 1][pair + 4] : 0u;
  u[kM][1] = u[kM][3] = 0u;
}

// S' = e^{G_C} S + sum_s u_s~^T m(y_s). A warp owns the tiles of its i, and all columns.
template <int kK, int kV>
__device__ __forceinline__ void update_state(
    StateTiles<kK, kV>& S,
    const Stage<kK, kV>& s,
    const Factors& f,
    bool scaled,
    int tokens,
    const Lane& at
) {
  using Of = Features<kK>;
  constexpr int kM = kV / 16;
  if (scaled) {
    const float kept = f.kept;
    for_registers<kK, kV>(S, [&](float& x) { x *= kept; });
  }
  const int row = 8 * (at.lane / 8 % 2) + at.lane % 8;  // whose address this lane gives
#pragma unroll 1
  for (int step = 0; step < (tokens + 15) / 16; ++step) {
    uint32_t y[Of::kBlocks][2], yi[Of::kBlocks][2];  // tokens 2t (+8), dim 8 block + g; and dim i
#pragma unroll
    for (int n = 0; n < Of::kBlocks; n += 2) {
      uint32_t four[4];
      load_matrices_transposed(four, s.y.at(16 * step + row, n + at.lane / 16));
      y[n][0] = four[0], y[n][1] = four[1], y[n + 1][0] = four[2], y[n + 1][1] = four[3];
    }
#pragma unroll
    for (int n = 0; n < Of::kBlocks; ++n) {
      yi[n][0] = __shfl_sync(~0u, y[n][0], 4 * at.warp + at.t);
      yi[n][1] = __shfl_sync(~0u, y[n][1], 4 * at.warp + at.t);
    }
    uint32_t u[kM + 1][4];
    load_values<kV>(u, s.u, f, scaled, step, at);
    unrolled<Of::kSlots - 1>([&](auto number) {
      constexpr int n = decltype(number)::value;
      constexpr Tile tile = Of::slot(n);
      uint32_t b0 = multiply_pairs(y[tile.block][0], yi[tile.i][0]);
      uint32_t b1 = multiply_pairs(y[tile.block][1], yi[tile.i][1]);
      if (n == 0 && at.warp == 1 && at.g == 0) b0 = b1 = 0x3f803f80u;  // the constant
#pragma unroll
      for (int m = 0; m <= kM; ++m) multiply(S[n][m], u[m], b0, b1);
    });
    if (at.warp < Of::kBlocks) {
      uint32_t b0 = y[0][0], b1 = y[0][1];
#pragma unroll
      for (int n = 1; n < Of::kBlocks; ++n) {
        if (at.warp == n) b0 = y[n][0], b1 = y[n][1];
      }
#pragma unroll
      for (int m = 0; m <= kM; ++m) multiply(S[Of::kSlots - 1][m], u[m], b0, b1);
    }
  }
}

// Writes the bf16 copy that the readers use: W S (+ factor dS, the gradient of the final state). dS: this thread's registers,
// or null.
template <int kK, int kV>
__device__ __forceinline__ void copy_state(
    const StateTiles<kK, kV>& S,
    unsigned char* copy,
    float* ones,
    const PowerSweep& p,
    const float* dS,
    float factor,
    const Lane& at
) {
  using Of = Features<kK>;
  constexpr int kM = kV / 16;
  unrolled<Of::kSlots>([&](auto number) {
    constexpr int n = decltype(number)::value;
    constexpr Tile slot = Of::slot(n);
    if (slot.i < 0 && at.warp >= Of::kBlocks) return;
    const int block = slot.i < 0 ? at.warp : slot.block;
    const int tile = slot.i < 0
                         ? Of::kTiles - Of::kBlocks + block
                         : Of::first(slot.i) + at.warp * (Of::kBlocks - slot.i) + block - slot.i;
    float W0 = slot.i < 0 ? p.c1 : slot.i == slot.block ? p.c2 : 2.f * p.c2, W1 = W0;
    if (n == 0 && at.t == 0 && at.warp == 1) W0 = p.c0;
    if (n == 0 && at.t == 0 && at.warp == 0) W1 = 2.f * p.c2;
    unsigned char* to = copy + tile * 16 + at.t * 4;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float a = W0 * S[n][m][2 * h], b = W1 * S[n][m][2 * h + 1];
        if (dS != nullptr) {
          a += factor * dS[register_at<kV>(n, m, 2 * h)];
          b += factor * dS[register_at<kV>(n, m, 2 * h + 1)];
        }
        *reinterpret_cast<uint32_t*>(to + (16 * m + at.g + 8 * h) * Of::kStride) = pack(a, b);
      }
    }
    float z0 = S[n][kM][0], z1 = S[n][kM][1];
    z0 = W0 * (z0 + __shfl_xor_sync(~0u, z0, 4));
    z1 = W1 * (z1 + __shfl_xor_sync(~0u, z1, 4));
    if (at.g >= 2) return;
    if (dS != nullptr) {  // lanes with g = 0 hold the column of ones of dS
      z0 += factor * dS[register_at<kV>(n, kM, 0) - 4 * at.g];
      z1 += factor * dS[register_at<kV>(n, kM, 1) - 4 * at.g];
    }
    const uint2 split = weight_pair({z0, z1});
    *reinterpret_cast<uint32_t*>(to + (kV + at.g) * Of::kStride) = at.g == 0 ? split.x : split.y;
    if (at.g == 0) *reinterpret_cast<float2*>(ones + 8 * tile + 2 * at.t) = {z0, z1};
  });
}

}  // namespace
}  // namespace horner::cuda
