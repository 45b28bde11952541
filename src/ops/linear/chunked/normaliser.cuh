// `linear`, level 2: what norm = sum adds to a sweep (Normaliser in linear.cuh).
#pragma once

#include "ops/linear/chunked/job.cuh"

namespace horner::cuda {
namespace {

enum class Norm { none, divides, shifts, follows };  // no normaliser; forward; dq and dk; dv
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

template <Norm kNorm, int kRows>
__device__ int norm_bytes(const Normaliser& n) {
  if (kNorm == Norm::none || kNorm == Norm::follows) return 0;
  return kNorm == Norm::divides ? 4 * kRows + (n.floor ? 256 : 0) : 512;
}

// Loads the sums that enter the chunk of token t, and the chunk's Delta (forward: its floor).
template <Norm kNorm, int kRows, bool kReverse>
__device__ void load_norm(
    const Sweep& p, const Job& job, int t, float* sums, float* shift, uint32_t full
) {
  const Normaliser& n = p.norm;
  const int chunks = int((p.T + 63) / 64), i = kReverse ? chunks - 1 - t / 64 : t / 64;
  const int head = ((1 + i) * int(p.B) + job.b) * n.heads + job.h / p.v.group;
  const float* from = n.sums + int64_t(head) * n.width;
  const float* tokens = kNorm == Norm::divides ? n.floor : n.shift;
  if constexpr (kNorm == Norm::divides) {
    load_numbers(shared_address(sums), from, full, 4 * kRows);
  } else {
    load_numbers(shared_address(sums), from + job.first_column, full, 256);
  }
  if (tokens)
    load_numbers(shared_address(shift), tokens + (int64_t(job.bh) * chunks * 64 + t), full, 256);
}

// den and floor of the thread's two rows.
struct Denominators {
  float den[2], floor[2];
};

// The part of den that comes from the state: R_t q_t . z. Lane l computes half of row l / 2 of its warp.
template <int kRows>
__device__ Denominators rows_by_sums(
    const unsigned char (*q)[kTileBytes], const float* z, float R0, float R1, const Place& at
) {
  const int row = 16 * at.warp + at.lane / 2;
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < kRows / 16; ++j) {
    const int tile = j / 4, unit = 4 * (at.lane % 2) + j % 4;
    const uint4 x = *reinterpret_cast<const uint4*>(q[tile] + tile_offset(row, unit));
    const float4* y = reinterpret_cast<const float4*>(z + 64 * tile + 8 * unit);
    const float4 early = y[0], late = y[1];
    sum += low_half(x.x) * early.x + high_half(x.x) * early.y;
    sum += low_half(x.y) * early.z + high_half(x.y) * early.w;
    sum += low_half(x.z) * late.x + high_half(x.z) * late.y;
    sum += low_half(x.w) * late.z + high_half(x.w) * late.w;
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  const float first = R0 * __shfl_sync(~0u, sum, 2 * (at.lane / 4));
  const float second = R1 * __shfl_sync(~0u, sum, 2 * (at.lane / 4) + 16);
  return {{first, second}, {}};
}

// den += the weights inside the chunk. They are rounded as in the numerator, so that a single token has weight exactly 1.
// With a floor, weights have both signs and may nearly cancel, so they are summed unrounded (exact).
__device__ inline void add_weights(
    Denominators& d, bool exact, const float (&P)[32], const uint32_t (&rounded)[4][4]
) {
  float sum[2] = {0.f, 0.f};
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    const uint32_t two = rounded[e / 4][e % 4];
    sum[e % 2] += exact ? P[2 * e] + P[2 * e + 1] : low_half(two) + high_half(two);
  }
  d.den[0] += quad_sum(sum[0]);
  d.den[1] += quad_sum(sum[1]);
}

// Y = scale Y / max(scale den, floor).
__device__ inline void divide(
    float (&Y)[32],
    const Denominators& d,
    const Sweep& p,
    const Job& job,
    int64_t t,
    int rows,
    const Place& at
) {
  const float scale = float(p.scale);
  float factor[2];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float den = scale * d.den[n];
    factor[n] = scale / (p.norm.floor ? fmaxf(fabsf(den), d.floor[n]) : fmaxf(den, p.norm.eps));
    const int row = at.row + 8 * n;
    if (p.norm.den && job.block == 0 && at.lane % 4 == 0 && row < rows)
      p.norm.den[job.bh * p.T + t + row] = den;
  }
#pragma unroll
  for (int e = 0; e < 32; ++e) Y[e] *= factor[e / 2 % 2];
}

__device__ inline void leave_rest(float (&Y)[32]) {
#pragma unroll
  for (int e = 0; e < 32; e += 2) {
    const uint32_t both = pack(Y[e], Y[e + 1]);
    Y[e] -= low_half(both);
    Y[e + 1] -= high_half(both);
  }
}

// P_ts - Delta_t; in reverse the queries are the columns.
template <bool kReverse>
__device__ void shift_products(float (&P)[32], const float* shift, const Place& at) {
  const float rows[2] = {shift[at.row], shift[at.row + 8]};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 columns = *reinterpret_cast<const float2*>(shift + 8 * j + at.pair);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      P[4 * j + e] -= !kReverse ? rows[e / 2] : e % 2 ? columns.y : columns.x;
  }
}

// q_t S - Delta_t z; in reverse - zeta.
template <bool kReverse>
__device__ void shift_state(
    float (&Y)[32], const float* sums, const float* shift, const Place& at
) {
  const float rows[2] = {kReverse ? 1.f : shift[at.row], kReverse ? 1.f : shift[at.row + 8]};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 z = *reinterpret_cast<const float2*>(sums + 8 * j + at.pair);
#pragma unroll
    for (int e = 0; e < 4; ++e) Y[4 * j + e] -= rows[e / 2] * (e % 2 ? z.y : z.x);
  }
}

#endif

}  // namespace
}  // namespace horner::cuda
