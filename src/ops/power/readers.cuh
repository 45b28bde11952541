// `power`, level 2: what a warp does for 16 tokens of a chunk: o, or dq, or dk and dv.
#pragma once

#include "ops/power/state.cuh"

namespace horner::cuda {
namespace {

// Own features as operands: x[block][half], token g + 8 half, dims 8 block + 2t, + 1.
template <int kWidth>
__device__ __forceinline__ void load_own(
    uint32_t (&x)[kWidth / 8][2], const RowTile<kWidth>& rows, const Lane& at
) {
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
  const uint32_t base =
      shared_address(copy) + uint32_t(at.lane % 8) * Of::kStride + uint32_t(at.lane / 8 % 2) * 16;
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
        const uint32_t a[4] = {
            w[n + 2 * m][0], w[n + 2 * m][1], w[n + 2 * m + 1][0], w[n + 2 * m + 1][1]};
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
    const float (&P)[2][4],
    const RowTile<kWidth>& others,
    int block,
    const Lane& at
) {
  const uint32_t a[4] = {
      pack(P[0][0], P[0][1]),
      pack(P[0][2], P[0][3]),
      pack(P[1][0], P[1][1]),
      pack(P[1][2], P[1][3])};
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
        *reinterpret_cast<uint32_t*>(row_of<__nv_bfloat16>(to, job, t) + offset + column) =
            pack(a, b);
      }
    }
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
    const Lane& at
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
      p.decays ? f.read[16 * at.warp + at.g] : 1.f,
      p.decays ? f.read[16 * at.warp + at.g + 8] : 1.f};
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

}  // namespace
}  // namespace horner::cuda
