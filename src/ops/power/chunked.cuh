// `power`, level 2: one sweep over chunks of 128 tokens on tensor cores, as a block does it.
//
// All three sweeps have one form. Tokens of the chunk read the state and each other; then the others join it:
//
//   sweep     direction   own x, w   others y, u   state              own token's results
//   forward   forward     q          k, v          S                  o
//   dq        forward     q, do      k, v          S                  den, Delta, dq
//   dkv       reverse     k, v       q, do         Z                  dk, dv
//
// Features come in tiles of 8: x_i times x_j, j in a block of 8 that is i's own or later, and the x_j themselves.
// Inside i's own block a pair appears twice, so that W is halved there, and one of the doubles, (1, 0), is the
// constant 1 instead. State: kV + 16 rows by features, rows kV and kV + 1 together the column of ones.
#pragma once

#include <utility>

#include "cuda/mma.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kC = kPowerChunk, kWarps = kPowerThreads / 32;

enum class Role { forward, dq, dkv };

struct Tile {
  int i, block;  // x_i x_{8 block} .. x_i x_{8 block + 7}; i = -1: without x_i
};

template <int kK>
struct Features {
  static constexpr int kBlocks = kK / 8;
  static constexpr int kSlots = kBlocks * (kBlocks + 1) / 2 + 1;  // tiles of a warp: i = warp, + 8, ..
  static constexpr int kTiles = 8 * (kSlots - 1) + kBlocks;
  static constexpr int kStride = 16 * kTiles + 16;  // bytes of a row of the copy, free of bank conflicts

  __host__ __device__ static constexpr Tile at(int n) {
    for (int a = 0; a < kBlocks; ++a) {
      const int width = kBlocks - a;
      if (n < 8 * width) return {8 * a + n / width, a + n % width};
      n -= 8 * width;
    }
    return {-1, n};
  }
  __host__ __device__ static constexpr int index(int i, int block) {
    int n = 0;
    for (int a = 0; a < i / 8; ++a) n += 8 * (kBlocks - a);
    return n + i % 8 * (kBlocks - i / 8) + block - i / 8;
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

// f(std::integral_constant) for 0 .. N - 1, unrolled, with the number known at compile time.
template <int kCount, class F>
__device__ __forceinline__ void unrolled(F&& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (f(std::integral_constant<int, kIndex>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

template <int kWidth>
struct RowTile {  // 128 tokens
  static constexpr int kStride = 2 * kWidth + 16;  // bytes; free of bank conflicts
  unsigned char bytes[kC * kStride];
  __device__ uint32_t at(int row, int unit) const {
    return shared_address(bytes) + uint32_t(row * kStride + unit * 16);
  }
};

template <int kK, int kV>
struct Stage {
  RowTile<kK> y;
  RowTile<kV> u;
};
template <int kK, int kV, Role kRole, bool kStateOnly>
struct FullStage : Stage<kK, kV> {
  RowTile<kK> x;
  RowTile<kV> w;
};
template <int kK, int kV>
struct FullStage<kK, kV, Role::forward, false> : Stage<kK, kV> {
  RowTile<kK> x;
};
template <int kK, int kV, Role kRole>
struct FullStage<kK, kV, kRole, true> : Stage<kK, kV> {};

// What is known of each token of a chunk before it is worked on.
struct Factors {
  float G[kC];            // log2 of the decay since the chunk's start
  float read[kC];         // what scales m(x) S
  float inverse[kC];      // dkv: 1 / den of the others, 0 after the end
  float delta[kC];        // dkv: Delta of the others
  uint2 write[kC / 2];    // what scales u on its way into the state, in pairs
  uint32_t ones[2][kC / 2];  // the two rows beside u, in pairs
  float kept;             // e^{G_C}
};

template <int kK, int kV, Role kRole, bool kStateOnly>
struct Memory {
  FullStage<kK, kV, kRole, kStateOnly> stage[2];
  unsigned char copy[kStateOnly ? 1 : 2][(kV + 8) * Features<kK>::kStride];  // W S in bf16, [column][feature]
  float ones[kStateOnly ? 1 : 2][8 * Features<kK>::kTiles];  // its column of ones, fp32
  Factors factors[2];
};

struct Job {
  int b, h, bh, block, segment;
  int first, count;  // chunks
};

struct Lane {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
};

template <class T>
__device__ T* row_of(const PowerRows& x, const Job& job, int64_t t) {
  return static_cast<T*>(x.data) + job.b * x.b + (job.h / x.group) * x.h + t * x.t;
}

template <int kWidth>
__device__ void load_rows(
    RowTile<kWidth>& to, const PowerRows& from, const Job& job, int64_t start, int64_t T, int first,
    int width
) {
  constexpr int kUnits = kWidth / 8;
  for (int n = threadIdx.x; n < kC * kUnits; n += kPowerThreads) {
    const int row = n / kUnits, unit = n % kUnits, column = first + 8 * unit;
    const bool valid = start + row < T && column < width;
    const __nv_bfloat16* address = row_of<__nv_bfloat16>(from, job, valid ? start + row : 0);
    copy_async(to.at(row, unit), address + (valid ? column : 0), valid);
  }
}

template <int kK, int kV, Role kRole, bool kStateOnly>
__device__ void load_stage(
    const PowerSweep& p, const Job& job, int64_t start, FullStage<kK, kV, kRole, kStateOnly>& s
) {
  const bool reverse = kRole == Role::dkv;
  const int first = job.block * kV;
  load_rows(s.y, reverse ? p.q : p.k, job, start, p.T, 0, p.K);
  load_rows(s.u, reverse ? p.dO : p.v, job, start, p.T, first, p.V);
  if constexpr (!kStateOnly) {
    load_rows(s.x, reverse ? p.k : p.q, job, start, p.T, 0, p.K);
    if constexpr (kRole == Role::dq) load_rows(s.w, p.dO, job, start, p.T, first, p.V);
    if constexpr (kRole == Role::dkv) load_rows(s.w, p.v, job, start, p.T, first, p.V);
  }
  copy_commit();
}

// --- factors of the tokens, by one warp; a lane has tokens 4 l .. 4 l + 3 -------------------------------

struct Raw {
  float g[4], den[4], delta[4];
};

template <Role kRole>
__device__ Raw load_factors(const PowerSweep& p, const Job& job, int64_t start) {
  Raw raw;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int64_t t = start + 4 * (threadIdx.x % 32) + n;
    const bool valid = t < p.T;
    raw.g[n] = p.decays && valid ? *row_of<float>(p.g, job, t) : 0.f;
    raw.den[n] = 1.f;
    raw.delta[n] = 0.f;
    if (kRole == Role::dkv && p.normalise && valid) {
      raw.den[n] = p.den[int64_t(job.bh) * p.T + t];
      raw.delta[n] = p.delta[(int64_t(job.block) * p.B * p.H + job.bh) * p.T + t];
    }
  }
  return raw;
}

// A reset (-inf) is held at 2^-127, which is 0: then no difference of two sums is NaN.
template <Role kRole>
__device__ float prepare_factors(const Raw& raw, int64_t tokens, Factors& f) {
  const int lane = threadIdx.x % 32;
  float G[4], write[4], ones[4], sum = 0.f;
#pragma unroll
  for (int n = 0; n < 4; ++n) G[n] = sum += fmaxf(raw.g[n] * 1.4426950408889634f, -127.f);
  float before = sum;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float other = __shfl_up_sync(~0u, before, d);
    if (lane >= d) before += other;
  }
  const float last = __shfl_sync(~0u, before, 31);
  before -= sum;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int t = 4 * lane + n;
    G[n] += before;
    const float since = exp2_fast(G[n]), until = exp2_fast(last - G[n]);
    const float valid = t < tokens ? 1.f : 0.f;
    f.G[t] = G[n];
    if (kRole == Role::dkv) {
      const float inverse = valid / raw.den[n];
      f.read[t] = until;
      f.inverse[t] = inverse;
      f.delta[t] = raw.delta[n];
      write[n] = since * inverse;
      ones[n] = -raw.delta[n] * write[n];
    } else {
      f.read[t] = since;
      write[n] = ones[n] = until * valid;
    }
  }
#pragma unroll
  for (int n = 0; n < 4; n += 2) {
    const uint2 both = weight_pair({ones[n], ones[n + 1]});
    f.write[2 * lane + n / 2] = weight_pair({write[n], write[n + 1]});
    f.ones[0][2 * lane + n / 2] = both.x;
    f.ones[1][2 * lane + n / 2] = both.y;
  }
  if (lane == 0) f.kept = exp2_fast(last);
  return last;
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

// f(element, i, j, column): features x_i x_j (i = -1: x_j; i = j = -1: 1), column V for the ones.
template <int kK, int kV, class F>
__device__ __forceinline__ void for_state(
    StateTiles<kK, kV>& S, const PowerSweep& p, const Job& job, const Lane& at, F&& f
) {
  using Of = Features<kK>;
  unrolled<Of::kSlots>([&](auto number) {
    constexpr int n = decltype(number)::value;
    constexpr Tile tile = Of::slot(n);
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
        f(S[n][m][e], i, j, column);
      }
    }
  });
}

// Where a monomial stands in a state of the op (order by order, lexicographic); -1: beyond its order.
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

template <int kK, int kV>
__device__ float* state_slot(float* states, const PowerSweep& p, const Job& job, int segment) {
  constexpr int kRegisters = Features<kK>::kSlots * (kV / 16 + 1) * 4;
  const int64_t at = (int64_t(job.bh) * p.blocks + job.block) * p.segments + segment;
  return states + at * kRegisters * kPowerThreads + threadIdx.x;
}
template <int kK, int kV>
__device__ void load_state(StateTiles<kK, kV>& S, const float* from) {
  for_registers<kK, kV>(S, [&](float& x) {
    x = *from;
    from += kPowerThreads;
  });
}
template <int kK, int kV>
__device__ void store_state(StateTiles<kK, kV>& S, float* to) {
  for_registers<kK, kV>(S, [&](float x) {
    *to = x;
    to += kPowerThreads;
  });
}

// S' = e^{G_C} S + sum_s u_s~^T m(y_s). A warp has the tiles of its i, and all columns.
template <int kK, int kV>
__device__ void update_state(
    StateTiles<kK, kV>& S, const Stage<kK, kV>& s, const Factors& f, bool scaled, int tokens, const Lane& at
) {
  using Of = Features<kK>;
  constexpr int kM = kV / 16;
  if (scaled) {
    const float kept = f.kept;
    for_registers<kK, kV>(S, [&](float& x) { x *= kept; });
  }
  const int row = 8 * (at.lane / 8 % 2) + at.lane % 8;  // of the matrices that a lane addresses
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
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const int token = 16 * step + 8 * (at.lane / 16) + at.lane % 8;
      load_matrices_transposed(u[m], s.u.at(token, 2 * m + at.lane / 8 % 2));
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
    unrolled<Of::kSlots - 1>([&](auto number) {
      constexpr int n = decltype(number)::value;
      constexpr Tile tile = Of::slot(n);
      uint32_t b0 = multiply_pairs(y[tile.block][0], yi[tile.i][0]);
      uint32_t b1 = multiply_pairs(y[tile.block][1], yi[tile.i][1]);
      if (n == 0 && at.warp == 1 && at.g == 0) b0 = b1 = 0x3f803f80u;  // the constant
#pragma unroll
      for (int m = 0; m <= kM; ++m) multiply_add(S[n][m], u[m], b0, b1);
    });
    if (at.warp < Of::kBlocks) {
      uint32_t b0 = y[0][0], b1 = y[0][1];
#pragma unroll
      for (int n = 1; n < Of::kBlocks; ++n) {
        if (at.warp == n) b0 = y[n][0], b1 = y[n][1];
      }
#pragma unroll
      for (int m = 0; m <= kM; ++m) multiply_add(S[Of::kSlots - 1][m], u[m], b0, b1);
    }
  }
}

// W S (+ the gradient of the final state) as the readers want it.
template <int kK, int kV>
__device__ void copy_state(
    const StateTiles<kK, kV>& S,
    unsigned char* copy,
    float* ones,
    const PowerSweep& p,
    const Job& job,
    float dS_factor,
    const Lane& at
) {
  using Of = Features<kK>;
  constexpr int kM = kV / 16;
  const float* dS = dS_factor != 0.f ? p.last_grad : nullptr;
  const int64_t head = (int64_t(job.b) * p.H + job.h) / p.state_group;
  unrolled<Of::kSlots>([&](auto number) {
    constexpr int n = decltype(number)::value;
    constexpr Tile slot = Of::slot(n);
    if (slot.i < 0 && at.warp >= Of::kBlocks) return;
    const int i = slot.i < 0 ? -1 : 8 * slot.i + at.warp;
    const int block = slot.i < 0 ? at.warp : slot.block;
    const int tile = slot.i < 0 ? Of::kTiles - Of::kBlocks + block : Of::index(i, block);
    float W0 = slot.i < 0 ? p.c1 : slot.i == slot.block ? p.c2 : 2.f * p.c2, W1 = W0;
    if (n == 0 && at.t == 0 && at.warp == 1) W0 = p.c0;
    if (n == 0 && at.t == 0 && at.warp == 0) W1 = 2.f * p.c2;
    const int j = 8 * block + 2 * at.t;
    const bool constant = i == 1 && j == 0;
    // The gradient stands once where a pair appears twice: at i <= j.
    const auto from_end = [&](int e, int column) {
      const int jj = j + e;
      if (dS == nullptr || i >= p.K || jj >= p.K || column > p.V - (p.normalise ? 0 : 1)) return 0.f;
      if (constant && e == 0) return dS_factor * dS[state_at(p, head, 0, column)];
      if (i > jj) return 0.f;
      const int monomial = monomial_at(p, i, jj);
      return monomial < 0 ? 0.f : dS_factor * dS[state_at(p, head, monomial, column)];
    };
    unsigned char* to = copy + tile * 16 + at.t * 4;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = 16 * m + at.g + 8 * h, column = job.block * kV + row;
        float a = W0 * S[n][m][2 * h], b = W1 * S[n][m][2 * h + 1];
        if (dS != nullptr && column < p.V) a += from_end(0, column), b += from_end(1, column);
        *reinterpret_cast<uint32_t*>(to + row * Of::kStride) = pack(a, b);
      }
    }
    float z0 = S[n][kM][0], z1 = S[n][kM][1];
    z0 = W0 * (z0 + __shfl_xor_sync(~0u, z0, 4));
    z1 = W1 * (z1 + __shfl_xor_sync(~0u, z1, 4));
    if (dS != nullptr && p.normalise && job.block == 0) z0 += from_end(0, p.V), z1 += from_end(1, p.V);
    const uint2 split = weight_pair({z0, z1});
    if (at.g < 2)
      *reinterpret_cast<uint32_t*>(to + (kV + at.g) * Of::kStride) = at.g == 0 ? split.x : split.y;
    if (at.g == 0) *reinterpret_cast<float2*>(ones + 8 * tile + 2 * at.t) = {z0, z1};
  });
}

// --- readers: a warp has 16 own tokens --------------------------------------------------------------

// Own features as operands: x[block][half], token g + 8 half, dims 8 block + 2t, + 1.
template <int kWidth>
__device__ void load_own(uint32_t (&x)[kWidth / 8][2], const RowTile<kWidth>& rows, const Lane& at) {
#pragma unroll
  for (int n = 0; n < kWidth / 8; n += 2) {
    uint32_t four[4];
    const int row = 16 * at.warp + 8 * (at.lane / 8 % 2) + at.lane % 8;
    load_matrices(four, rows.at(row, n + at.lane / 16));
    x[n][0] = four[0], x[n][1] = four[1], x[n + 1][0] = four[2], x[n + 1][1] = four[3];
  }
}

// x_i of the two own tokens, in both halves of a pair.
template <int kK>
__device__ __forceinline__ void splat(
    uint32_t (&s)[2], const uint32_t (&x)[kK / 8][2], int i, const Lane& at
) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
    s[h] = splat_half(__shfl_sync(~0u, x[i / 8][h], (at.lane & ~3) | (i % 8 / 2)), i % 2);
}

// Y (16 tokens by kN tiles of 8 columns) += m(x) W S.
template <int kK, int kN>
__device__ __forceinline__ void read_state(
    float (&Y)[kN][4], const uint32_t (&x)[kK / 8][2], const unsigned char* copy, const Lane& at
) {
  using Of = Features<kK>;
  const uint32_t base = shared_address(copy) + uint32_t(at.lane % 8) * Of::kStride +
                        uint32_t(at.lane / 8 % 2) * 16;
  uint32_t s[2] = {0, 0};
  unrolled<Of::kTiles / 2>([&](auto number) {
    constexpr int kStep = decltype(number)::value;
    uint32_t a[4];
    unrolled<2>([&](auto side) {
      constexpr int kSide = decltype(side)::value, kTile = 2 * kStep + kSide;
      constexpr Tile tile = Of::at(kTile), before = Of::at(kTile > 0 ? kTile - 1 : 0);
      if constexpr (tile.i < 0) {
        a[2 * kSide] = x[tile.block][0], a[2 * kSide + 1] = x[tile.block][1];
      } else {
        if constexpr (kTile == 0 || tile.i != before.i) splat<kK>(s, x, tile.i, at);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          uint32_t both = multiply_pairs(x[tile.block][h], s[h]);
          if (tile.i == 1 && tile.block == 0 && at.t == 0) both = (both & 0xffff0000u) | 0x3f80u;
          a[2 * kSide + h] = both;
        }
      }
    });
#pragma unroll
    for (int n = 0; n + 1 < kN; n += 2) {
      uint32_t b[4];
      load_matrices(b, base + uint32_t(8 * (n + at.lane / 16)) * Of::kStride + kStep * 32);
      multiply_add(Y[n], a, b[0], b[1]);
      multiply_add(Y[n + 1], a, b[2], b[3]);
    }
    if constexpr (kN % 2 == 1) {
      uint32_t b[2];
      load_two_matrices(b, base + uint32_t(8 * (kN - 1)) * Of::kStride + kStep * 32);
      multiply_add(Y[kN - 1], a, b[0], b[1]);
    }
  });
}

__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// dx += J(x)^T dm(x),  dm(x) = factor (w (W S)^T + shift (ones)) of the two own tokens; flow = m(x).dm(x).
template <int kK, int kV>
__device__ __forceinline__ void read_gradient(
    float (&dx)[kK / 8][4],
    float (&flow)[2],
    const uint32_t (&x)[kK / 8][2],
    const uint32_t (&w)[kV / 8][2],
    const unsigned char* copy,
    const float* ones,
    const float (&factor)[2],
    const float (&shift)[2],
    const Lane& at
) {
  using Of = Features<kK>;
  const uint32_t base = shared_address(copy) + uint32_t(at.lane) * Of::kStride;
  uint32_t s[2] = {0, 0};
  float of_i[2] = {0.f, 0.f};
  unrolled<Of::kTiles>([&](auto number) {
    constexpr int kTile = decltype(number)::value;
    constexpr Tile tile = Of::at(kTile);
    float d[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int n = 0; n < kV / 8; n += 4) {
      uint32_t b[4];
      load_matrices_transposed(b, base + uint32_t(8 * n) * Of::kStride + kTile * 16);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint32_t a[4] = {w[n + 2 * m][0], w[n + 2 * m][1], w[n + 2 * m + 1][0], w[n + 2 * m + 1][1]};
        multiply_add(d, a, b[2 * m], b[2 * m + 1]);
      }
    }
    const float2 one = *reinterpret_cast<const float2*>(ones + 8 * kTile + 2 * at.t);
    if constexpr (tile.i >= 0) {
      constexpr Tile before = Of::at(kTile > 0 ? kTile - 1 : 0);
      if constexpr (kTile == 0 || tile.i != before.i) splat<kK>(s, x, tile.i, at);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float d0 = (d[2 * h] + shift[h] * one.x) * factor[h];
      const float d1 = (d[2 * h + 1] + shift[h] * one.y) * factor[h];
      const uint32_t xj = x[tile.block][h];
      if constexpr (tile.i < 0) {
        dx[tile.block][2 * h] += d0;
        dx[tile.block][2 * h + 1] += d1;
        flow[h] += d0 * low_half(xj) + d1 * high_half(xj);
      } else {
        if (tile.i == 1 && tile.block == 0 && at.t == 0) {
          flow[h] += d0;
          d0 = 0.f;
        }
        const float xi = low_half(s[h]), sum = d0 * low_half(xj) + d1 * high_half(xj);
        dx[tile.block][2 * h] += d0 * xi;
        dx[tile.block][2 * h + 1] += d1 * xi;
        of_i[h] += sum;
        flow[h] += sum * xi;
      }
    }
    if constexpr (tile.i >= 0) {
      constexpr Tile after = Of::at(kTile + 1);
      if constexpr (after.i != tile.i) {  // dx_i is whole: to the lane that has dim i
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float sum = quad_sum(of_i[h]);
          if (at.t == tile.i % 8 / 2) dx[tile.i / 8][2 * h + tile.i % 2] += sum;
          of_i[h] = 0.f;
        }
      }
    }
  });
  flow[0] = quad_sum(flow[0]);
  flow[1] = quad_sum(flow[1]);
}

// X (16 own tokens by the 16 others of a block) = a . others, over kWidth dims.
template <int kWidth>
__device__ __forceinline__ void products(
    float (&X)[2][4], const uint32_t (&a)[kWidth / 8][2], const RowTile<kWidth>& others, int block, const Lane& at
) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) X[n][e] = 0.f;
  }
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    uint32_t b[4];
    const int row = 16 * block + 8 * (at.lane / 16) + at.lane % 8;
    load_matrices(b, others.at(row, 2 * k + at.lane / 8 % 2));
    const uint32_t own[4] = {a[2 * k][0], a[2 * k][1], a[2 * k + 1][0], a[2 * k + 1][1]};
    multiply_add(X[0], own, b[0], b[1]);
    multiply_add(X[1], own, b[2], b[3]);
  }
}

// Y += P (16 own by 16 others, as an operand) times the others' rows.
template <int kWidth, int kN>
__device__ __forceinline__ void accumulate(
    float (&Y)[kN][4], const float (&P)[2][4], const RowTile<kWidth>& others, int block, const Lane& at
) {
  const uint32_t a[4] = {
      pack(P[0][0], P[0][1]), pack(P[0][2], P[0][3]), pack(P[1][0], P[1][1]), pack(P[1][2], P[1][3])};
#pragma unroll
  for (int n = 0; n < kWidth / 8; n += 2) {
    uint32_t b[4];
    const int row = 16 * block + 8 * (at.lane / 8 % 2) + at.lane % 8;
    load_matrices_transposed(b, others.at(row, n + at.lane / 16));
    multiply_add(Y[n], a, b[0], b[1]);
    multiply_add(Y[n + 1], a, b[2], b[3]);
  }
}

// M_ts of own and others, 0 where they do not see each other.
template <Role kRole>
__device__ __forceinline__ void decay_mask(
    float (&M)[2][4], const Factors& f, int block, bool decays, const Lane& at
) {
  const int own = 16 * at.warp + at.g;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = own + 8 * (e / 2), column = 16 * block + 8 * n + 2 * at.t + e % 2;
      const float difference = f.G[row] - f.G[column];
      const float decay = decays ? exp2_fast(kRole == Role::dkv ? -difference : difference) : 1.f;
      M[n][e] = (kRole == Role::dkv ? column >= row : column <= row) ? decay : 0.f;
    }
  }
}

// The first kN tiles of 8 columns.
template <int kN, int kAll>
__device__ __forceinline__ void store_rows(
    const float (&Y)[kAll][4],
    const PowerRows& to,
    bool wide,
    int64_t offset,
    const Job& job,
    int64_t start,
    const PowerSweep& p,
    int first,
    int width,
    const float (&factor)[2],
    const Lane& at
) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t t = start + 16 * at.warp + at.g + 8 * h;
    if (t >= p.T) continue;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const int column = first + 8 * n + 2 * at.t;
      if (column >= width) continue;
      const float a = Y[n][2 * h] * factor[h], b = Y[n][2 * h + 1] * factor[h];
      if (wide) {
        *reinterpret_cast<float2*>(row_of<float>(to, job, t) + offset + column) = {a, b};
      } else {
        *reinterpret_cast<uint32_t*>(row_of<__nv_bfloat16>(to, job, t) + offset + column) = pack(a, b);
      }
    }
  }
}

// A number of each own token, (blocks,B,H,T).
__device__ inline void store_numbers(
    float* to, const float (&value)[2], const PowerSweep& p, const Job& job, int block, int64_t start, const Lane& at
) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t t = start + 16 * at.warp + at.g + 8 * h;
    if (at.t == 0 && t < p.T) to[(int64_t(block) * p.B * p.H + job.bh) * p.T + t] = value[h];
  }
}

// o, or for dq its den and Delta too: num~ = e^{G_t} m(q) W S + sum_{s<=t} M p(x) v~.
template <int kK, int kV, Role kRole>
__device__ __forceinline__ void attend(
    float (&Y)[kV / 8 + 1][4],
    float (&den)[2],
    const uint32_t (&x)[kK / 8][2],
    const FullStage<kK, kV, kRole, false>& s,
    const unsigned char* copy,
    const Factors& f,
    const PowerSweep& p,
    const Lane& at
) {
#pragma unroll
  for (int n = 0; n <= kV / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) Y[n][e] = 0.f;
  }
  read_state<kK>(Y, x, copy, at);
  if (p.decays) {
    const float r[2] = {f.read[16 * at.warp + at.g], f.read[16 * at.warp + at.g + 8]};
#pragma unroll
    for (int n = 0; n <= kV / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) Y[n][e] *= r[e / 2];
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)  // lane t = 0 has the two halves of the column of ones
    den[h] = at.t == 0 ? Y[kV / 8][2 * h] + Y[kV / 8][2 * h + 1] : 0.f;
#pragma unroll 1
  for (int block = 0; block <= at.warp; ++block) {
    float X[2][4], M[2][4];
    products<kK>(X, x, s.y, block, at);
    decay_mask<kRole>(M, f, block, p.decays, at);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float &a = X[n][2 * h], &b = X[n][2 * h + 1];
        a = M[n][2 * h] * ((p.c2 * a + p.c1) * a + p.c0);
        b = M[n][2 * h + 1] * ((p.c2 * b + p.c1) * b + p.c0);
        const uint32_t both = pack(a, b);  // den sums the weights that num has
        a = low_half(both), b = high_half(both);
        den[h] += a + b;
      }
    }
    accumulate<kV>(Y, X, s.u, block, at);
  }
  den[0] = quad_sum(den[0]);
  den[1] = quad_sum(den[1]);
}

template <int kK, int kV>
__device__ __forceinline__ void compute_o(
    const FullStage<kK, kV, Role::forward, false>& s,
    const unsigned char* copy,
    const Factors& f,
    const PowerSweep& p,
    const Job& job,
    int64_t start,
    const Lane& at
) {
  uint32_t x[kK / 8][2];
  load_own<kK>(x, s.x, at);
  float Y[kV / 8 + 1][4], den[2], factor[2];
  attend<kK, kV, Role::forward>(Y, den, x, s, copy, f, p, at);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (p.clamps) den[h] = fmaxf(den[h], p.eps);
    factor[h] = p.normalise ? 1.f / den[h] : 1.f;
  }
  store_rows<kV / 8>(Y, p.o, false, 0, job, start, p, job.block * kV, p.V, factor, at);
}

template <int kK, int kV>
__device__ __forceinline__ void compute_dq(
    const FullStage<kK, kV, Role::dq, false>& s,
    const unsigned char* copy,
    const float* ones,
    const Factors& f,
    const PowerSweep& p,
    const Job& job,
    int64_t start,
    const Lane& at
) {
  uint32_t x[kK / 8][2], w[kV / 8][2];
  load_own<kK>(x, s.x, at);
  load_own<kV>(w, s.w, at);
  float inverse[2] = {1.f, 1.f}, delta[2] = {0.f, 0.f};
  if (p.normalise) {
    float Y[kV / 8 + 1][4], den[2];
    attend<kK, kV, Role::dq>(Y, den, x, s, copy, f, p, at);
#pragma unroll
    for (int n = 0; n < kV / 8; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        delta[h] += Y[n][2 * h] * low_half(w[n][h]) + Y[n][2 * h + 1] * high_half(w[n][h]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool held = p.clamps && den[h] < p.eps;  // a constant: no gradient through den
      if (held) den[h] = p.eps;
      inverse[h] = 1.f / den[h];
      delta[h] = held ? 0.f : quad_sum(delta[h]) * inverse[h];
    }
    if (job.block == 0) store_numbers(p.den, den, p, job, 0, start, at);
    store_numbers(p.delta, delta, p, job, job.block, start, at);
  }
  float dx[kK / 8][4] = {}, flow[2] = {0.f, 0.f}, crossing[2] = {0.f, 0.f};
  const float read[2] = {
      (p.decays ? f.read[16 * at.warp + at.g] : 1.f) * inverse[0],
      (p.decays ? f.read[16 * at.warp + at.g + 8] : 1.f) * inverse[1]};
  const float shift[2] = {-delta[0], -delta[1]};
  read_gradient<kK, kV>(dx, flow, x, w, copy, ones, read, shift, at);
#pragma unroll 1
  for (int block = 0; block <= at.warp; ++block) {
    float X[2][4], D[2][4], M[2][4];
    products<kK>(X, x, s.y, block, at);
    products<kV>(D, w, s.u, block, at);
    decay_mask<Role::dq>(M, f, block, p.decays, at);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float dw = M[n][e] * (D[n][e] - delta[e / 2]) * inverse[e / 2];
        const bool own = 16 * block + 8 * n + 2 * at.t + e % 2 == 16 * at.warp + at.g + 8 * (e / 2);
        if (!own) crossing[e / 2] += dw * ((p.c2 * X[n][e] + p.c1) * X[n][e] + p.c0);
        X[n][e] = dw * (2.f * p.c2 * X[n][e] + p.c1);
      }
    }
    accumulate<kK>(dx, X, s.y, block, at);
  }
  const float one[2] = {1.f, 1.f};
  store_rows<kK / 8>(dx, p.dq, p.wide_dq, job.block * p.dq_block, job, start, p, 0, p.K, one, at);
  if (p.decays) {
    crossing[0] = quad_sum(crossing[0]);
    crossing[1] = quad_sum(crossing[1]);
    store_numbers(p.rho, flow, p, job, job.block, start, at);
    store_numbers(p.early, crossing, p, job, job.block, start, at);
  }
}

template <int kK, int kV>
__device__ __forceinline__ void compute_dkv(
    const FullStage<kK, kV, Role::dkv, false>& s,
    const unsigned char* copy,
    const float* ones,
    const Factors& f,
    const PowerSweep& p,
    const Job& job,
    int64_t start,
    int tokens,
    const Lane& at
) {
  uint32_t x[kK / 8][2], w[kV / 8][2];
  load_own<kK>(x, s.x, at);
  load_own<kV>(w, s.w, at);
  float Y[kV / 8][4] = {}, dx[kK / 8][4] = {}, flow[2] = {0.f, 0.f}, crossing[2] = {0.f, 0.f};
  const float one[2] = {1.f, 1.f};
  const float read[2] = {
      p.decays ? f.read[16 * at.warp + at.g] : 1.f, p.decays ? f.read[16 * at.warp + at.g + 8] : 1.f};
  read_state<kK>(Y, x, copy, at);
#pragma unroll
  for (int n = 0; n < kV / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) Y[n][e] *= read[e / 2];
  }
  read_gradient<kK, kV>(dx, flow, x, w, copy, ones, read, one, at);
#pragma unroll 1
  for (int block = at.warp; block < (tokens + 15) / 16; ++block) {
    float X[2][4], D[2][4], M[2][4];
    products<kK>(X, x, s.y, block, at);
    products<kV>(D, w, s.u, block, at);
    decay_mask<Role::dkv>(M, f, block, p.decays, at);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int column = 16 * block + 8 * n + 2 * at.t;
      const float2 inverse = *reinterpret_cast<const float2*>(f.inverse + column);
      const float2 delta = *reinterpret_cast<const float2*>(f.delta + column);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float weight = M[n][e] * (e % 2 ? inverse.y : inverse.x);
        const float dw = weight * (D[n][e] - (e % 2 ? delta.y : delta.x));
        const bool own = column + e % 2 == 16 * at.warp + at.g + 8 * (e / 2);
        const float value = (p.c2 * X[n][e] + p.c1) * X[n][e] + p.c0;
        if (!own) crossing[e / 2] += dw * value;
        D[n][e] = dw * (2.f * p.c2 * X[n][e] + p.c1);
        X[n][e] = weight * value;
      }
    }
    accumulate<kV>(Y, X, s.u, block, at);
    accumulate<kK>(dx, D, s.y, block, at);
  }
  store_rows<kV / 8>(Y, p.dv, p.wide_dv, 0, job, start, p, job.block * kV, p.V, one, at);
  store_rows<kK / 8>(dx, p.dk, p.wide_dk, job.block * p.dk_block, job, start, p, 0, p.K, one, at);
  if (p.decays) {
    crossing[0] = quad_sum(crossing[0]);
    crossing[1] = quad_sum(crossing[1]);
    store_numbers(p.kappa, flow, p, job, job.block, start, at);
    store_numbers(p.late, crossing, p, job, job.block, start, at);
  }
}

// --- the sweep -----------------------------------------------------------------------------------------

// A block walks over the chunks of its segment. Every warp has the features of its i in the state, in
// registers, and 16 tokens of each chunk. Shared memory: two stages of rows, two copies of the state. One barrier
// per chunk: chunk i is read while the rows of i + 1 arrive and the state for it is copied.
template <int kK, int kV, Role kRole, bool kStateOnly>
__device__ void sweep(const PowerSweep& p, unsigned char* raw) {
  Memory<kK, kV, kRole, kStateOnly>& m = *reinterpret_cast<Memory<kK, kV, kRole, kStateOnly>*>(raw);
  constexpr bool kReverse = kRole == Role::dkv;
  const Lane at;
  const int heads = int(p.B * p.H), chunks = int((p.T + kC - 1) / kC);
  Job job;
  job.bh = int(blockIdx.x) % heads;
  job.b = job.bh / int(p.H);
  job.h = job.bh % int(p.H);
  job.block = int(blockIdx.x) / heads % p.blocks;
  job.segment = int(blockIdx.x) / heads / p.blocks + (kStateOnly && kReverse ? 1 : 0);
  job.first = job.segment * p.length;
  job.count = min(p.length, chunks - job.first);
  const auto start_of = [&](int i) {
    return int64_t(job.first + (kReverse ? job.count - 1 - i : i)) * kC;
  };
  const auto tokens_of = [&](int i) { return int(min(int64_t(kC), p.T - start_of(i))); };

  StateTiles<kK, kV> S = {};
  const int64_t head = (int64_t(job.b) * p.H + job.h) / p.state_group;
  if (!kReverse && job.segment == 0) {
    if (p.first != nullptr) {
      for_state<kK, kV>(S, p, job, at, [&](float& x, int i, int j, int column) {
        const int monomial = monomial_at(p, i, j);
        if (monomial >= 0) x = p.first[state_at(p, head, monomial, column)];
      });
    }
  } else if (!kStateOnly && !kReverse) {
    load_state<kK, kV>(S, state_slot<kK, kV>(p.S, p, job, job.segment - 1));
  } else if (!kStateOnly && job.segment < p.segments - 1) {
    load_state<kK, kV>(S, state_slot<kK, kV>(p.Z, p, job, job.segment + 1));
  }
  const bool from_end = kReverse && !kStateOnly && p.last_grad != nullptr && job.h % p.state_group == 0;
  float end_decay = 0.f;  // log2, from this chunk's end to the last token
  if (from_end && p.decays) {
    for (int n = job.segment + 1; n < p.segments; ++n) end_decay += p.passed[job.bh * p.segments + n];
  }
  const auto end_factor = [&] { return from_end ? exp2_fast(end_decay) : 0.f; };

  load_stage(p, job, start_of(0), m.stage[0]);
  float passed = 0.f;
  if (at.warp == 0) passed += prepare_factors<kRole>(load_factors<kRole>(p, job, start_of(0)), tokens_of(0), m.factors[0]);
  if constexpr (!kStateOnly) {
    for (int n = threadIdx.x; n < 2 * 6 * Features<kK>::kStride / 4; n += kPowerThreads) {
      const int words = 6 * Features<kK>::kStride / 4;  // rows that no one writes
      reinterpret_cast<uint32_t*>(m.copy[n / words] + (kV + 2) * Features<kK>::kStride)[n % words] = 0u;
    }
    copy_state<kK, kV>(S, m.copy[0], m.ones[0], p, job, end_factor(), at);
  }

  for (int i = 0; i < job.count; ++i) {
    const auto& s = m.stage[i & 1];
    const Factors& f = m.factors[i & 1];
    copy_wait<0>();
    __syncthreads();
    const bool more = i + 1 < job.count;
    Raw next;
    if (more) {
      load_stage(p, job, start_of(i + 1), m.stage[(i + 1) & 1]);
      if (at.warp == 0) next = load_factors<kRole>(p, job, start_of(i + 1));
    }
    if constexpr (!kStateOnly) {
      const unsigned char* copy = m.copy[i & 1];
      const float* ones = m.ones[i & 1];
      if constexpr (kRole == Role::forward) compute_o<kK, kV>(s, copy, f, p, job, start_of(i), at);
      if constexpr (kRole == Role::dq) compute_dq<kK, kV>(s, copy, ones, f, p, job, start_of(i), at);
      if constexpr (kRole == Role::dkv)
        compute_dkv<kK, kV>(s, copy, ones, f, p, job, start_of(i), tokens_of(i), at);
    }
    update_state<kK, kV>(S, s, f, p.decays || (kReverse && p.normalise), tokens_of(i), at);
    if (more) {
      if (p.decays) end_decay += log2f(fmaxf(f.kept, 0x1p-126f));
      if (at.warp == 0) passed += prepare_factors<kRole>(next, tokens_of(i + 1), m.factors[(i + 1) & 1]);
      if constexpr (!kStateOnly)
        copy_state<kK, kV>(S, m.copy[(i + 1) & 1], m.ones[(i + 1) & 1], p, job, end_factor(), at);
    } else if (p.decays) {
      end_decay += log2f(fmaxf(f.kept, 0x1p-126f));
    }
  }

  if constexpr (kStateOnly) {
    store_state<kK, kV>(S, state_slot<kK, kV>(kReverse ? p.Z : p.S, p, job, job.segment));
    if (threadIdx.x == 0 && job.block == 0 && p.passed) p.passed[job.bh * p.segments + job.segment] = passed;
    return;
  }
  float* to = kReverse ? p.first_grad : p.last;
  const bool writes = kReverse ? job.segment == 0 : job.segment == p.segments - 1 && job.h % p.state_group == 0;
  if (kStateOnly || to == nullptr || !writes) return;
#pragma unroll
  for (int n = 0; n < Features<kK>::kSlots; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& z = S[n][kV / 16][e];
      z += __shfl_xor_sync(~0u, z, 4);
    }
  }
  const int64_t target = kReverse ? int64_t(job.bh) : head;
  const float end = end_factor();
  for_state<kK, kV>(S, p, job, at, [&](float& x, int i, int j, int column) {
    const int monomial = monomial_at(p, i, j);
    if (i > j || monomial < 0) return;  // a double, or beyond the order
    const bool once = column < p.V || job.block == 0;
    if (!kReverse) {
      if (once) to[state_at(p, target, monomial, column)] = x;
      return;
    }
    float value = x * weight_of(p, i, j);
    if (end != 0.f && once) value += end * p.last_grad[state_at(p, head, monomial, column)];
    if (column < p.V) {
      to[state_at(p, target, monomial, column)] = value;
    } else {  // each block has its part of Delta
      p.first_grad_ones[(int64_t(job.block) * p.B * p.H + job.bh) * feature_count(p) + monomial] = value;
    }
  });
}

}  // namespace
}  // namespace horner::cuda
