// `power`, level 2: what a warp's 16 tokens read from the state that enters their chunk.
#pragma once

#include "ops/power/chunked/state.cuh"

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
    const int row = 16 * at.tile() + 8 * (at.lane / 8 % 2) + at.lane % 8;
    load_matrices(four, rows.at(row, n + at.lane / 16));
    x[n][0] = four[0], x[n][1] = four[1], x[n + 1][0] = four[2], x[n + 1][1] = four[3];
  }
}

// x_i of the two own tokens, in both halves of a pair, for i = 8 block + 2 pair and i + 1: s[i % 2][token].
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
    multiply(Y[n], a, b[0], b[1]);
    multiply(Y[n + 1], a, b[2], b[3]);
  }
  if constexpr (kN % 2 == 1) {
    uint32_t b[2];
    load_two_matrices(b, address + uint32_t(8 * (kN - 1)) * kStride);
    multiply(Y[kN - 1], a, b[0], b[1]);
  }
}

// Y += m(x) W S. Two i at a time, so that the number of tiles is even.
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

// dm(x) / factor = w (W S)^T + shift (ones), of the features 2t, 2t + 1 of a tile: d[token][feature].
template <int kK, int kV>
struct FeatureGradient {
  const uint32_t (&w)[kV / 8][2];
  const float* ones;
  const float (&shift)[2];
  uint32_t base;  // of the copy of W S

  __device__ __forceinline__ void operator()(int tile, float (&d)[2][2], const Lane& at) const {
    float sum[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int n = 0; n < kV / 8; n += 4) {
      uint32_t b[4];
      load_matrices_transposed(b, base + uint32_t(8 * n) * Features<kK>::kStride + tile * 16);
#pragma unroll
      for (int m = 0; m < 4; m += 2) {
        const uint32_t a[4] = {w[n + m][0], w[n + m][1], w[n + m + 1][0], w[n + m + 1][1]};
        multiply(sum, a, b[m], b[m + 1]);
      }
    }
    const float2 one = *reinterpret_cast<const float2*>(ones + 8 * tile + 2 * at.t);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      d[h][0] = sum[2 * h] + shift[h] * one.x;
      d[h][1] = sum[2 * h + 1] + shift[h] * one.y;
    }
  }
};

// Features x_i x_j, i in block kA, two i at a time: dx_i += d x_j, dx_j += d x_i, flow += d x_i x_j.
template <int kA, int kK, int kV>
__device__ __forceinline__ void add_pairs_of_block(
    float (&dx)[kK / 8][4],
    float (&flow)[2],
    const uint32_t (&x)[kK / 8][2],
    const FeatureGradient<kK, kV>& gradient,
    const Lane& at
) {
  using Of = Features<kK>;
  constexpr int kWidth = Of::kBlocks - kA;
#pragma unroll 1
  for (int pair = 0; pair < 4; ++pair) {
    uint32_t s[2][2];
    float of_i[2][2] = {};  // [i % 2][token]
    splat(s, x[kA], pair, at);
    unrolled<2 * kWidth>([&](auto step) {
      constexpr int kTile = decltype(step)::value;
      constexpr int kParity = kTile / kWidth, kBlock = kA + kTile % kWidth;
      float d[2][2];
      gradient(Of::first(kA) + 2 * kWidth * pair + kTile, d, at);
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
    for (int h = 0; h < 2; ++h) {  // dx_i is complete: send it to the lane that owns dim i
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float sum = quad_sum(of_i[n][h]);
        if (at.t == pair) dx[kA][2 * h + n] += sum;
      }
    }
  }
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
  const FeatureGradient<kK, kV> gradient{w, ones, shift, base};
  unrolled<Of::kBlocks>([&](auto number) {
    add_pairs_of_block<decltype(number)::value>(dx, flow, x, gradient, at);
  });
#pragma unroll
  for (int n = 0; n < Of::kBlocks; ++n) {  // the features x_i
    float d[2][2];
    gradient(Of::kTiles - Of::kBlocks + n, d, at);
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

}  // namespace
}  // namespace horner::cuda
