// `power`, level 2: pairs of a warp's 16 own tokens and the other tokens of the chunk, and the stores of results.
#pragma once

#include "ops/power/chunked/tokens.cuh"

namespace horner::cuda {
namespace {

// X (16 own tokens by 16 others) = a . others, over kWidth dims. block: which 16 others.
template <int kWidth>
__device__ __forceinline__ void products(
    float (&X)[2][4],
    const uint32_t (&a)[kWidth / 8][2],
    const RowTile<kWidth>& others,
    int block,
    const Lane& at
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
    multiply(X[0], own, b[0], b[1]);
    multiply(X[1], own, b[2], b[3]);
  }
}

// Y += P (16 own tokens by 16 others, as an operand) times the rows of the others.
template <int kWidth, int kN>
__device__ __forceinline__ void accumulate(
    float (&Y)[kN][4],
    const uint32_t (&P)[4],
    const RowTile<kWidth>& others,
    int block,
    const Lane& at
) {
#pragma unroll
  for (int n = 0; n < kWidth / 8; n += 2) {
    uint32_t b[4];
    const int row = 16 * block + 8 * (at.lane / 8 % 2) + at.lane % 8;
    load_matrices_transposed(b, others.at(row, n + at.lane / 16));
    multiply(Y[n], P, b[0], b[1]);
    multiply(Y[n + 1], P, b[2], b[3]);
  }
}
template <int kWidth, int kN>
__device__ __forceinline__ void accumulate(
    float (&Y)[kN][4],
    const float (&P)[2][4],
    const RowTile<kWidth>& others,
    int block,
    const Lane& at
) {
  const uint32_t both[4] = {
      pack(P[0][0], P[0][1]),
      pack(P[0][2], P[0][3]),
      pack(P[1][0], P[1][1]),
      pack(P[1][2], P[1][3])};
  accumulate<kWidth>(Y, both, others, block, at);
}

// Half of `products`: 8 others, from row `first` on.
template <int kWidth>
__device__ __forceinline__ void products_of_8(
    float (&X)[4],
    const uint32_t (&a)[kWidth / 8][2],
    const RowTile<kWidth>& others,
    int first,
    const Lane& at
) {
#pragma unroll
  for (int e = 0; e < 4; ++e) X[e] = 0.f;
#pragma unroll
  for (int k = 0; k < kWidth / 8; k += 4) {
    uint32_t b[4];
    if constexpr (kWidth == 16) {
      uint32_t two[2];
      load_two_matrices(two, others.at(first + at.lane % 8, at.lane / 8 % 2));
      b[0] = two[0], b[1] = two[1];
    } else {
      load_matrices(b, others.at(first + at.lane % 8, k + at.lane / 8));
    }
#pragma unroll
    for (int n = 0; n < 4 && k + n < kWidth / 8; n += 2) {
      const uint32_t own[4] = {a[k + n][0], a[k + n][1], a[k + n + 1][0], a[k + n + 1][1]};
      multiply(X, own, b[n], b[n + 1]);
    }
  }
}

// M_ts of own tokens `own`, own + 8 and others `other`, other + 1, in the layout of an accumulator. 0 if the pair is masked,
// which happens only inside a block of 16. kPlain: no decay, no mask.
template <Role kRole, bool kPlain>
__device__ __forceinline__ void decays_between(
    float (&M)[4], const Factors& f, bool decays, int own, int other
) {
  constexpr bool kFuture = kRole == Role::dkv;
#pragma unroll
  for (int e = 0; e < 4; ++e) M[e] = 1.f;
  if (kPlain) return;
  if (decays) {
    const float2 G = *reinterpret_cast<const float2*>(f.G + other);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float until = f.G[own + e / 2 * 8] - (e % 2 ? G.y : G.x);
      M[e] = exp2_fast(kFuture ? -until : until);
    }
  }
  if (own / 16 != other / 16) return;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int ahead = own + e / 2 * 8 - other - e % 2;
    if (kFuture ? ahead > 0 : ahead < 0) M[e] = 0.f;
  }
}

// body(block, plain) for blocks [first, end) of 16 others. tile: the block of the own tokens. plain: no decay, no mask.
template <class Body>
__device__ __forceinline__ void for_blocks(
    int first, int end, int tile, bool decays, const Body& body
) {
#pragma unroll 1
  for (int block = first; block < end; ++block) {
    if (decays || block == tile) {
      body(block, std::false_type{});
    } else {
      body(block, std::true_type{});
    }
  }
}

// Stores the first kN tiles of 8 columns. kRest: stores their rounding error instead. Rows of bf16 go through shared memory,
// so that whole cache lines are written.
template <int kN, bool kRest = false, int kAll = kN>
__device__ __forceinline__ void store_rows(
    const float (&Y)[kAll][4],
    const Rows& to,
    bool wide,
    int64_t offset,
    const Job& job,
    int64_t start,
    const PowerSweep& p,
    int first,
    int width,
    const float (&factor)[2],
    unsigned char* staging,
    const Lane& at
) {
  constexpr int kStride = 16 * kN + 16;  // bytes; free of bank conflicts
  start += 16 * at.tile();
  const int rows = int(min(int64_t(16), p.T - start));
  const int64_t base = row_at(to, job, start) + offset + first;
  if (wide) {
#pragma unroll
    for (int n = 0; n < 2 * kN; ++n) {
      const int row = at.g + 8 * (n % 2), column = 8 * (n / 2) + 2 * at.t, e = 2 * (n % 2);
      float* here = static_cast<float*>(to.data) + base + row * to.t + column;
      if (row < rows && first + column < width)
        *reinterpret_cast<float2*>(here) = {
            Y[n / 2][e] * factor[n % 2], Y[n / 2][e + 1] * factor[n % 2]};
    }
    return;
  }
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2 * kN; ++n) {
    const int row = at.g + 8 * (n % 2), e = 2 * (n % 2);
    const float a = Y[n / 2][e] * factor[n % 2], b = Y[n / 2][e + 1] * factor[n % 2];
    uint32_t both = pack(a, b);
    if (kRest) both = pack(a - low_half(both), b - high_half(both));
    *reinterpret_cast<uint32_t*>(staging + row * kStride + 16 * (n / 2) + 4 * at.t) = both;
  }
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kN / 2; ++n) {
    const int row = (at.lane + 32 * n) / kN, unit = (at.lane + 32 * n) % kN;
    const uint4 eight = *reinterpret_cast<const uint4*>(staging + row * kStride + 16 * unit);
    __nv_bfloat16* here = static_cast<__nv_bfloat16*>(to.data) + base + row * to.t + 8 * unit;
    if (row < rows && first + 8 * unit < width) *reinterpret_cast<uint4*>(here) = eight;
  }
}

// Stores one number of each own token, (blocks,B,H,T).
__device__ __forceinline__ void store_numbers(
    float* to,
    const float (&value)[2],
    const PowerSweep& p,
    const Job& job,
    int block,
    int64_t start,
    const Lane& at
) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t t = start + 16 * at.tile() + at.g + 8 * h;
    if (at.t == 0 && t < p.T) to[(int64_t(block) * p.B * p.H + job.bh) * p.T + t] = value[h];
  }
}

}  // namespace
}  // namespace horner::cuda
