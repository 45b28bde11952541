// `power`, level 3: the weight of a pair of tokens, and the stores of a warpgroup's sums.
#pragma once

#include "ops/power/parallel/walk.cuh"

namespace horner::cuda {
namespace {

// p(x) and p'(x) of 4 scores by Horner's rule; kOrder 0: the order is known only at run time.
struct Polynomial {
  float value[4], slope[4];
};
template <int kOrder, bool kSlope>
__device__ __forceinline__ Polynomial polynomial(const PowerParallel& p, const float* x) {
  Polynomial y;
  if constexpr (kOrder == 2) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      y.value[e] = (p.c[2] * x[e] + p.c[1]) * x[e] + p.c[0];
      y.slope[e] = 2.f * p.c[2] * x[e] + p.c[1];
    }
    return y;
  }
  const int order = kOrder > 0 ? kOrder : p.order;
#pragma unroll
  for (int e = 0; e < 4; ++e) y.value[e] = p.c[order], y.slope[e] = 0.f;
#pragma unroll
  for (int n = order - 1; n >= 0; --n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (kSlope) y.slope[e] = y.slope[e] * x[e] + y.value[e];
      y.value[e] = y.value[e] * x[e] + p.c[n];
    }
  }
  return y;
}

// Masks pairs that do not see each other. 64 own tokens; the others begin `offset` after the first own token.
template <bool kFuture, int kSteps>
__device__ __forceinline__ void hide(uint32_t (&a)[kSteps][4], int offset, const Place& at) {
#pragma unroll
  for (int n = 0; n < 4 * kSteps; ++n) {
    const int row = at.row + 8 * (n % 2), column = 8 * (n / 2) + at.pair + offset;
    if (kFuture ? column < row : column > row) a[n / 4][n % 4] &= 0xffff0000u;
    if (kFuture ? column + 1 < row : column + 1 > row) a[n / 4][n % 4] &= 0x0000ffffu;
  }
}

// M_ts of a warpgroup's own tokens and others; 0 if they do not see each other.
template <bool kFuture, bool kDecay>
struct Decays {
  const float* since = nullptr;
  const double* before = nullptr;
  double own_before = 0;
  float own[2] = {},
        now[2] = {};  // log2 since the start of the block: of their own, of that of the others

  __device__ Decays(const PowerParallel& p, const Pairs& job, int block, const Place& at) {
    if (!kDecay) return;
    const int64_t head = job.b * (p.H / p.g_group) + job.h / p.g_group, blocks = p.padded / 64;
    since = p.since + head * p.padded;
    before = p.before + head * blocks;
    if (block >= blocks) return;
    own_before = before[block];
    for (int h = 0; h < 2; ++h) own[h] = since[64 * block + at.row + 8 * h];
  }
  __device__ void meet(int other) {
    if (!kDecay) return;
    const float between = float(own_before - before[other / 64]);
    now[0] = own[0] + between;
    now[1] = own[1] + between;
  }
  // M of 4 elements of an accumulator. other: the first of their two columns; column: its distance to the first own row.
  __device__ __forceinline__ void weights(float (&M)[4], int other, int column, int row) const {
    const float2 s = *reinterpret_cast<const float2*>(since + other);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const float x = now[n / 2] - (n % 2 ? s.y : s.x);
      const int ahead = column + n % 2 - row - 8 * (n / 2);
      M[n] = exp2_fast(fminf(kFuture ? -x : x, 0.f));
      if (kFuture ? ahead < 0 : ahead > 0) M[n] = 0.f;
    }
  }
};

// Stores rows of a warpgroup (64 x kD) times a factor of each row. kRest: stores their rounding error to bf16 instead.
template <int kD, bool kRest = false>
__device__ __forceinline__ void store_own(
    const float (&Y)[kD / 64][32],
    float f0,
    float f1,
    const Rows& to,
    bool wide,
    const Pairs& job,
    int64_t start,
    int64_t T,
    int width,
    const Place& at
) {
  const int64_t base = job.b * to.b + (job.h / to.group) * to.h;
#pragma unroll
  for (int n = 0; n < kD / 64; ++n) {
#pragma unroll
    for (int e = 0; e < 32; e += 2) {
      const int64_t t = start + at.row + 8 * (e / 2 % 2);
      const int column = 64 * n + 8 * (e / 4) + at.pair;
      const float f = e / 2 % 2 ? f1 : f0;
      if (t >= T || column >= width) continue;
      float first = Y[n][e] * f, second = Y[n][e + 1] * f;
      if (kRest) {
        const uint32_t both = pack(first, second);
        first -= low_half(both);
        second -= high_half(both);
      }
      if (wide) {
        *reinterpret_cast<float2*>(static_cast<float*>(to.data) + base + t * to.t + column) = {
            first, second};
      } else {
        *reinterpret_cast<uint32_t*>(
            static_cast<__nv_bfloat16*>(to.data) + base + t * to.t + column
        ) = pack(first, second);
      }
    }
  }
}

}  // namespace
}  // namespace horner::cuda
