// `power`, level 2: what a warp does for 16 tokens of a chunk: o, or dq, or dk and dv.
#pragma once

#include "ops/power/state.cuh"

namespace horner::cuda {
namespace {

// Own features as operands: x[block][half], token g + 8 half, dims 8 block + 2t, + 1.
template <int kWidth>
__device__ __forceinline__ void load_own(
    uint32_t (&x)[kWidth / 8][2], const RowTile<kWidth>& rows, const Reader& at
) {
#pragma unroll
  for (int n = 0; n < kWidth / 8; n += 2) {
    uint32_t four[4];
    const int row = 16 * at.tile + 8 * (at.lane / 8 % 2) + at.lane % 8;
    load_matrices(four, rows.at(row, n + at.lane / 16));
    x[n][0] = four[0], x[n][1] = four[1], x[n + 1][0] = four[2], x[n + 1][1] = four[3];
  }
}

// x_i of the two own tokens in both halves of a pair, for i = 8 block + 2 pair, + 1: s[i % 2][token].
__device__ __forceinline__ void splat(
    uint32_t (&s)[2][2], const uint32_t (&x)[2], int pair, const Lane& at
) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t both = __shfl_sync(~0u, x[h], (at.lane & ~3) | pair);
    s[0][h] = splat_half(both, false);
    s[1][h] = splat_half(both, true);
  }
}

// Y (16 tokens by kN tiles of 8 columns) += a (a tile pair of features) times the copy's rows at `address`.
template <int kStride, int kN>
__device__ __forceinline__ void read_features(
    float (&Y)[kN][4], const uint32_t (&a)[4], uint32_t address, const Lane& at
) {
#pragma unroll
  for (int n = 0; n + 1 < kN; n += 2) {
    uint32_t b[4];
    load_matrices(b, address + uint32_t(8 * (n + at.lane / 16)) * kStride);
    multiply_add(Y[n], a, b[0], b[1]);
    multiply_add(Y[n + 1], a, b[2], b[3]);
  }
  if constexpr (kN % 2 == 1) {
    uint32_t b[2];
    load_two_matrices(b, address + uint32_t(8 * (kN - 1)) * kStride);
    multiply_add(Y[kN - 1], a, b[0], b[1]);
  }
}

// Y += m(x) W S. Two i at a time, so that their tiles pair up whatever their number.
template <int kK, int kN>
__device__ __forceinline__ void read_state(
    float (&Y)[kN][4], const uint32_t (&x)[kK / 8][2], const unsigned char* copy, const Lane& at
) {
  using Of = Features<kK>;
  const uint32_t base =
      shared_address(copy) + uint32_t(at.lane % 8) * Of::kStride + uint32_t(at.lane / 8 % 2) * 16;
  unrolled<Of::kBlocks>([&](auto number) {
    constexpr int kA = decltype(number)::value, kWidth = Of::kBlocks - kA;
#pragma unroll 1
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t s[2][2];
      splat(s, x[kA], pair, at);
      unrolled<kWidth>([&](auto step) {
        constexpr int kStep = decltype(step)::value;
        uint32_t a[4];
        unrolled<2>([&](auto side) {
          constexpr int kSide = decltype(side)::value, kTile = 2 * kStep + kSide;
          constexpr int kParity = kTile / kWidth, kBlock = kA + kTile % kWidth;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            uint32_t both = multiply_pairs(x[kBlock][h], s[kParity][h]);
            if (kBlock == 0 && kParity == 1 && pair == 0 && at.t == 0)
              both = (both & 0xffff0000u) | 0x3f80u;  // the constant
            a[2 * kSide + h] = both;
          }
        });
        const int tile = Of::first(kA) + 2 * kWidth * pair + 2 * kStep;
        read_features<Of::kStride>(Y, a, base + tile * 16, at);
      });
    }
  });
#pragma unroll
  for (int n = 0; n < Of::kBlocks; n += 2) {
    const uint32_t a[4] = {x[n][0], x[n][1], x[n + 1][0], x[n + 1][1]};
    read_features<Of::kStride>(Y, a, base + (Of::kTiles - Of::kBlocks + n) * 16, at);
  }
}

__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// dx = J(x)^T dm(x),  dm(x) = factor (w (W S)^T + shift (ones)) of the two own tokens; flow = m(x).dm(x).
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
  // dm(x) / factor of the features 2t, 2t + 1 of a tile: d[token][feature].
  const auto gradient = [&](int tile, float(&d)[2][2]) {
    float sum[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int n = 0; n < kV / 8; n += 4) {
      uint32_t b[4];
      load_matrices_transposed(b, base + uint32_t(8 * n) * Of::kStride + tile * 16);
#pragma unroll
      for (int m = 0; m < 4; m += 2) {
        const uint32_t a[4] = {w[n + m][0], w[n + m][1], w[n + m + 1][0], w[n + m + 1][1]};
        multiply_add(sum, a, b[m], b[m + 1]);
      }
    }
    const float2 one = *reinterpret_cast<const float2*>(ones + 8 * tile + 2 * at.t);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      d[h][0] = sum[2 * h] + shift[h] * one.x;
      d[h][1] = sum[2 * h + 1] + shift[h] * one.y;
    }
  };
  unrolled<Of::kBlocks>([&](auto number) {
    constexpr int kA = decltype(number)::value, kWidth = Of::kBlocks - kA;
#pragma unroll 1
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t s[2][2];
      float of_i[2][2] = {};  // [i % 2][token]
      splat(s, x[kA], pair, at);
      unrolled<2 * kWidth>([&](auto step) {
        constexpr int kTile = decltype(step)::value;
        constexpr int kParity = kTile / kWidth, kBlock = kA + kTile % kWidth;
        float d[2][2];
        gradient(Of::first(kA) + 2 * kWidth * pair + kTile, d);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (kBlock == 0 && kParity == 1 && pair == 0 && at.t == 0) {  // the constant
            flow[h] += d[h][0];
            d[h][0] = 0.f;
          }
          const float xi = low_half(s[kParity][h]);
          const float sum = d[h][0] * low_half(x[kBlock][h]) + d[h][1] * high_half(x[kBlock][h]);
          dx[kBlock][2 * h] += d[h][0] * xi;
          dx[kBlock][2 * h + 1] += d[h][1] * xi;
          of_i[kParity][h] += sum;
          flow[h] += sum * xi;
        }
      });
#pragma unroll
      for (int h = 0; h < 2; ++h) {  // dx_i is whole: to the lane that has dim i
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const float sum = quad_sum(of_i[n][h]);
          if (at.t == pair) dx[kA][2 * h + n] += sum;
        }
      }
    }
  });
#pragma unroll
  for (int n = 0; n < Of::kBlocks; ++n) {
    float d[2][2];
    gradient(Of::kTiles - Of::kBlocks + n, d);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      dx[n][2 * h] += d[h][0];
      dx[n][2 * h + 1] += d[h][1];
      flow[h] += d[h][0] * low_half(x[n][h]) + d[h][1] * high_half(x[n][h]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    flow[h] = quad_sum(flow[h]) * factor[h];
#pragma unroll
    for (int n = 0; n < kK / 8; ++n) dx[n][2 * h] *= factor[h], dx[n][2 * h + 1] *= factor[h];
  }
}

// X (16 own tokens by the 16 others of a block) = a . others, over kWidth dims.
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
    multiply_add(X[0], own, b[0], b[1]);
    multiply_add(X[1], own, b[2], b[3]);
  }
}

// Y += P (16 own by 16 others, as an operand) times the others' rows.
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
    multiply_add(Y[n], P, b[0], b[1]);
    multiply_add(Y[n + 1], P, b[2], b[3]);
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
      multiply_add(X, own, b[n], b[n + 1]);
    }
  }
}

// M_ts of own tokens `own`, + 8 and others `other`, + 1, as an accumulator has them; 0 where they do not see each
// other, which is in question inside a block of 16 alone. kPlain: there is no decay, and they do.
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

// body(block, whether it is plain) for blocks [first, end) of others; `tile`: the own tokens'.
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

// The first kN tiles of 8 columns. kRest: what rounding to bf16 leaves of them. Rows of bf16 go through shared memory,
// so that whole lines are written.
template <int kN, bool kRest = false, int kAll = kN>
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
    unsigned char* staging,
    const Reader& at
) {
  constexpr int kStride = 16 * kN + 16;  // bytes; free of bank conflicts
  start += 16 * at.tile;
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

// A number of each own token, (blocks,B,H,T).
__device__ __forceinline__ void store_numbers(
    float* to,
    const float (&value)[2],
    const PowerSweep& p,
    const Job& job,
    int block,
    int64_t start,
    const Reader& at
) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t t = start + 16 * at.tile + at.g + 8 * h;
    if (at.t == 0 && t < p.T) to[(int64_t(block) * p.B * p.H + job.bh) * p.T + t] = value[h];
  }
}

// num~ = e^{G_t} m(q) W S + sum_{s<=t} M p(x) v~.
template <int kK, int kV>
__device__ __forceinline__ void attend(
    float (&Y)[kV / 8 + 1][4],
    float (&den)[2],
    const uint32_t (&x)[kK / 8][2],
    const FullStage<kK, kV, Role::forward, false>& s,
    const unsigned char* copy,
    const Factors& f,
    const PowerSweep& p,
    const Reader& at
) {
#pragma unroll
  for (int n = 0; n <= kV / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) Y[n][e] = 0.f;
  }
  read_state<kK>(Y, x, copy, at);
  if (p.decays) {
    const float r[2] = {f.read[16 * at.tile + at.g], f.read[16 * at.tile + at.g + 8]};
#pragma unroll
    for (int n = 0; n <= kV / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) Y[n][e] *= r[e / 2];
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)  // lane t = 0 has the two halves of the column of ones
    den[h] = at.t == 0 ? Y[kV / 8][2 * h] + Y[kV / 8][2 * h + 1] : 0.f;
  const int own = 16 * at.tile + at.g;
  for_blocks(0, at.tile + 1, at.tile, p.decays, [&](int block, auto plain) {
    float X[2][4];
    products<kK>(X, x, s.y, block, at);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float M[4];
      decays_between<Role::forward, decltype(plain)::value>(
          M, f, p.decays, own, 16 * block + 8 * n + 2 * at.t
      );
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float &a = X[n][2 * h], &b = X[n][2 * h + 1];
        a = M[2 * h] * ((p.c2 * a + p.c1) * a + p.c0);
        b = M[2 * h + 1] * ((p.c2 * b + p.c1) * b + p.c0);
        const uint32_t both = pack(a, b);  // den sums the weights that num has
        a = low_half(both), b = high_half(both);
        den[h] += a + b;
      }
    }
    accumulate<kV>(Y, X, s.u, block, at);
  });
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
    unsigned char* staging,
    const Reader& at
) {
  uint32_t x[kK / 8][2];
  load_own<kK>(x, s.x, at);
  float Y[kV / 8 + 1][4], den[2], factor[2];
  attend<kK, kV>(Y, den, x, s, copy, f, p, at);
  if (p.den != nullptr && job.block == 0) store_numbers(p.den, den, p, job, 0, f.start, at);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (p.clamps) den[h] = fmaxf(den[h], p.eps);
    factor[h] = p.normalise ? 1.f / den[h] : 1.f;
  }
  store_rows<kV / 8>(Y, p.o, false, 0, job, f.start, p, job.block * kV, p.V, factor, staging, at);
  if (p.o_rest.data != nullptr)
    store_rows<kV / 8, true>(
        Y, p.o_rest, false, 0, job, f.start, p, job.block * kV, p.V, factor, staging, at
    );
}

template <int kK, int kV>
__device__ __forceinline__ void compute_dq(
    const FullStage<kK, kV, Role::dq, false>& s,
    const unsigned char* copy,
    const float* ones,
    const Factors& f,
    const PowerSweep& p,
    const Job& job,
    unsigned char* staging,
    const Reader& at
) {
  uint32_t x[kK / 8][2], w[kV / 8][2];
  load_own<kK>(x, s.x, at);
  load_own<kV>(w, s.w, at);
  const int own = 16 * at.tile + at.g;
  float dx[kK / 8][4] = {}, flow[2] = {0.f, 0.f}, crossing[2] = {0.f, 0.f};
  {
    const float read[2] = {f.read[own] * f.inverse[own], f.read[own + 8] * f.inverse[own + 8]};
    const float shift[2] = {-f.delta[own], -f.delta[own + 8]};
    read_gradient<kK, kV>(dx, flow, x, w, copy, ones, read, shift, at);
  }
  const float inverse[2] = {f.inverse[own], f.inverse[own + 8]};
  const float delta[2] = {f.delta[own], f.delta[own + 8]};
  for_blocks(0, at.tile + 1, at.tile, p.decays, [&](int block, auto plain) {
    float X[2][4], D[2][4];
    products<kK>(X, x, s.y, block, at);
    products<kV>(D, w, s.u, block, at);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int column = 16 * block + 8 * n + 2 * at.t;
      float M[4];
      decays_between<Role::dq, decltype(plain)::value>(M, f, p.decays, own, column);
#pragma unroll
      for (int e = 0; e < 4; ++e) D[n][e] = M[e] * (D[n][e] - delta[e / 2]) * inverse[e / 2];  // dw
      if (!decltype(plain)::value && p.decays) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (own + e / 2 * 8 != column + e % 2)
            crossing[e / 2] += D[n][e] * ((p.c2 * X[n][e] + p.c1) * X[n][e] + p.c0);
        }
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) X[n][e] = D[n][e] * (2.f * p.c2 * X[n][e] + p.c1);
    }
    accumulate<kK>(dx, X, s.y, block, at);
  });
  const float one[2] = {1.f, 1.f};
  store_rows<kK / 8>(
      dx, p.dq, p.wide_dq, job.block * p.dq_block, job, f.start, p, 0, p.K, one, staging, at
  );
  if (p.decays) {
    crossing[0] = quad_sum(crossing[0]);
    crossing[1] = quad_sum(crossing[1]);
    store_numbers(p.rho, flow, p, job, job.block, f.start, at);
    store_numbers(p.early, crossing, p, job, job.block, f.start, at);
  }
}

// dv (Y) and dk (dx) from the other tokens of the chunk, either or both.
template <int kK, int kV, bool kValues, bool kKeys>
__device__ __forceinline__ void meet_others(
    float (&Y)[kV / 8][4],
    float (&dx)[kK / 8][4],
    float (&crossing)[2],
    const uint32_t (&x)[kK / 8][2],
    const uint32_t (&w)[kV / 8][2],
    const FullStage<kK, kV, Role::dkv, false>& s,
    const Factors& f,
    const PowerSweep& p,
    const Reader& at
) {
  const int own = 16 * at.tile + at.g;
#pragma unroll 1
  for (int block = at.tile; block < (f.tokens + 15) / 16; ++block) {
    uint32_t P[4], dP[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {  // registers for half of them at a time
      const int column = 16 * block + 8 * n + 2 * at.t;
      float X[4], D[4] = {}, M[4];
      products_of_8<kK>(X, x, s.y, 16 * block + 8 * n, at);
      if constexpr (kKeys) products_of_8<kV>(D, w, s.u, 16 * block + 8 * n, at);
      decays_between<Role::dkv, false>(M, f, p.decays, own, column);
      const float2 inverse = *reinterpret_cast<const float2*>(f.inverse + column);
      const float2 delta = *reinterpret_cast<const float2*>(f.delta + column);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float weight[2], slope[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float x_ts = X[2 * h + e], value = (p.c2 * x_ts + p.c1) * x_ts + p.c0;
          const float dw =
              M[2 * h + e] * (e ? inverse.y : inverse.x) * (D[2 * h + e] - (e ? delta.y : delta.x));
          if (own + 8 * h != column + e) crossing[h] += dw * value;
          weight[e] = M[2 * h + e] * value;
          slope[e] = dw * (2.f * p.c2 * x_ts + p.c1);
        }
        const uint32_t both = pack(weight[0], weight[1]);  // as num and den had them
        P[2 * n + h] = pack(low_half(both) * inverse.x, high_half(both) * inverse.y);
        dP[2 * n + h] = pack(slope[0], slope[1]);
      }
    }
    if constexpr (kValues) accumulate<kV>(Y, P, s.u, block, at);
    if constexpr (kKeys) accumulate<kK>(dx, dP, s.y, block, at);
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
    unsigned char* staging,
    const Reader& at
) {
  uint32_t x[kK / 8][2], w[kV / 8][2];
  load_own<kK>(x, s.x, at);
  float Y[kV / 8][4] = {}, dx[kK / 8][4] = {}, flow[2] = {0.f, 0.f}, crossing[2] = {0.f, 0.f};
  const float one[2] = {1.f, 1.f};
  const float read[2] = {f.read[16 * at.tile + at.g], f.read[16 * at.tile + at.g + 8]};
  read_state<kK>(Y, x, copy, at);
#pragma unroll
  for (int n = 0; n < kV / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) Y[n][e] *= read[e / 2];
  }
  constexpr bool kOnce = kK <= 16;  // registers for dv and dk at once
  if constexpr (!kOnce) {
    float none[2] = {0.f, 0.f};
    meet_others<kK, kV, true, false>(Y, dx, none, x, w, s, f, p, at);
    store_rows<kV / 8>(
        Y, p.dv, p.wide_dv, 0, job, f.start, p, job.block * kV, p.V, one, staging, at
    );
  }
  load_own<kV>(w, s.w, at);
  read_gradient<kK, kV>(dx, flow, x, w, copy, ones, read, one, at);
  meet_others<kK, kV, kOnce, true>(Y, dx, crossing, x, w, s, f, p, at);
  const Reader late(f);
  if constexpr (kOnce)
    store_rows<kV / 8>(
        Y, p.dv, p.wide_dv, 0, job, f.start, p, job.block * kV, p.V, one, staging, late
    );
  store_rows<kK / 8>(
      dx, p.dk, p.wide_dk, job.block * p.dk_block, job, f.start, p, 0, p.K, one, staging, late
  );
  if (p.decays) {
    crossing[0] = quad_sum(crossing[0]);
    crossing[1] = quad_sum(crossing[1]);
    store_numbers(p.kappa, flow, p, job, job.block, f.start, late);
    store_numbers(p.late, crossing, p, job, job.block, f.start, late);
  }
}

}  // namespace
}  // namespace horner::cuda
