// `power`, level 2: a warp computes the results of its 16 tokens of a chunk: o, or dq, or dk and dv.
#pragma once

#include "ops/power/chunked/pairs.cuh"
#include "ops/power/chunked/read_state.cuh"

namespace horner::cuda {
namespace {

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
    const Lane& at
) {
#pragma unroll
  for (int n = 0; n <= kV / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) Y[n][e] = 0.f;
  }
  read_state<kK>(Y, x, copy, at);
  if (p.decays) {
    const float r[2] = {f.read[16 * at.tile() + at.g], f.read[16 * at.tile() + at.g + 8]};
#pragma unroll
    for (int n = 0; n <= kV / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) Y[n][e] *= r[e / 2];
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)  // lane t = 0 holds the two halves of the column of ones
    den[h] = at.t == 0 ? Y[kV / 8][2 * h] + Y[kV / 8][2 * h + 1] : 0.f;
  const int own = 16 * at.tile() + at.g;
  for_blocks(0, at.tile() + 1, at.tile(), p.decays, [&](int block, auto plain) {
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
        const uint32_t both = pack(a, b);  // den sums the same rounded weights as num
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
    const Lane& at
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
    const Lane& at
) {
  uint32_t x[kK / 8][2], w[kV / 8][2];
  load_own<kK>(x, s.x, at);
  load_own<kV>(w, s.w, at);
  const int own = 16 * at.tile() + at.g;
  float dx[kK / 8][4] = {}, flow[2] = {0.f, 0.f}, crossing[2] = {0.f, 0.f};
  {
    const float read[2] = {f.read[own] * f.inverse[own], f.read[own + 8] * f.inverse[own + 8]};
    const float shift[2] = {-f.delta[own], -f.delta[own + 8]};
    read_gradient<kK, kV>(dx, flow, x, w, copy, ones, read, shift, at);
  }
  const float inverse[2] = {f.inverse[own], f.inverse[own + 8]};
  const float delta[2] = {f.delta[own], f.delta[own + 8]};
  for_blocks(0, at.tile() + 1, at.tile(), p.decays, [&](int block, auto plain) {
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

// dv (Y) += sum_t w_ts do~_t over the others of the chunk, 8 others at a time to save registers.
template <int kK, int kV>
__device__ __forceinline__ void add_values(
    float (&Y)[kV / 8][4],
    const uint32_t (&x)[kK / 8][2],
    const FullStage<kK, kV, Role::dkv, false>& s,
    const Factors& f,
    const PowerSweep& p,
    const Lane& at
) {
  const int tile = at.tile(), end = (f.tokens + 15) / 16;
  for_blocks(tile, end, tile, p.decays, [&](int block, auto plain) {
    uint32_t P[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int column = 16 * block + 8 * n + 2 * at.t;
      float X[4], M[4];
      products_of_8<kK>(X, x, s.y, 16 * block + 8 * n, at);
      decays_between<Role::dkv, decltype(plain)::value>(M, f, p.decays, 16 * tile + at.g, column);
      const float2 inverse = *reinterpret_cast<const float2*>(f.inverse + column);
#pragma unroll
      for (int e = 0; e < 4; ++e) X[e] = M[e] * ((p.c2 * X[e] + p.c1) * X[e] + p.c0);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t both = pack(X[2 * h], X[2 * h + 1]);  // rounded as in num and den
        P[2 * n + h] = pack(low_half(both) * inverse.x, high_half(both) * inverse.y);
      }
    }
    accumulate<kV>(Y, P, s.u, block, at);
  });
}

// dk (dx) += sum_t dx_ts q_t, in the same way; crossing: the sums of w dw.
template <int kK, int kV>
__device__ __forceinline__ void add_keys(
    float (&dx)[kK / 8][4],
    float (&crossing)[2],
    const uint32_t (&x)[kK / 8][2],
    const uint32_t (&w)[kV / 8][2],
    const FullStage<kK, kV, Role::dkv, false>& s,
    const Factors& f,
    const PowerSweep& p,
    const Lane& at
) {
  const int tile = at.tile(), own = 16 * tile + at.g, end = (f.tokens + 15) / 16;
  for_blocks(tile, end, tile, p.decays, [&](int block, auto plain) {
    uint32_t dP[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int column = 16 * block + 8 * n + 2 * at.t;
      float X[4], D[4], M[4];
      products_of_8<kK>(X, x, s.y, 16 * block + 8 * n, at);
      products_of_8<kV>(D, w, s.u, 16 * block + 8 * n, at);
      decays_between<Role::dkv, decltype(plain)::value>(M, f, p.decays, own, column);
      const float2 inverse = *reinterpret_cast<const float2*>(f.inverse + column);
      const float2 delta = *reinterpret_cast<const float2*>(f.delta + column);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float factor = M[e] * (e % 2 ? inverse.y : inverse.x);
        const float dw = factor * (D[e] - (e % 2 ? delta.y : delta.x));
        if (!decltype(plain)::value && own + e / 2 * 8 != column + e % 2)
          crossing[e / 2] += dw * ((p.c2 * X[e] + p.c1) * X[e] + p.c0);
        X[e] = dw * (2.f * p.c2 * X[e] + p.c1);
      }
      dP[2 * n] = pack(X[0], X[1]);
      dP[2 * n + 1] = pack(X[2], X[3]);
    }
    accumulate<kK>(dx, dP, s.y, block, at);
  });
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
    const Lane& at
) {
  uint32_t x[kK / 8][2], w[kV / 8][2];
  load_own<kK>(x, s.x, at);
  float Y[kV / 8][4] = {}, dx[kK / 8][4] = {}, flow[2] = {0.f, 0.f}, crossing[2] = {0.f, 0.f};
  const float one[2] = {1.f, 1.f};
  const float read[2] = {f.read[16 * at.tile() + at.g], f.read[16 * at.tile() + at.g + 8]};
  read_state<kK>(Y, x, copy, at);
#pragma unroll
  for (int n = 0; n < kV / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) Y[n][e] *= read[e / 2];
  }
  add_values<kK, kV>(Y, x, s, f, p, at);
  store_rows<kV / 8>(Y, p.dv, p.wide_dv, 0, job, f.start, p, job.block * kV, p.V, one, staging, at);
  load_own<kV>(w, s.w, at);
  read_gradient<kK, kV>(dx, flow, x, w, copy, ones, read, one, at);
  add_keys<kK, kV>(dx, crossing, x, w, s, f, p, at);
  store_rows<kK / 8>(
      dx, p.dk, p.wide_dk, job.block * p.dk_block, job, f.start, p, 0, p.K, one, staging, at
  );
  if (p.decays) {
    crossing[0] = quad_sum(crossing[0]);
    crossing[1] = quad_sum(crossing[1]);
    store_numbers(p.kappa, flow, p, job, job.block, f.start, at);
    store_numbers(p.late, crossing, p, job, job.block, f.start, at);
  }
}

}  // namespace
}  // namespace horner::cuda
