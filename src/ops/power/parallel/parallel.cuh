// `power`, level 3: the work of one block of threads, all pairs in tiles of 64 by 64 on Hopper's tensor cores.
//
//   kernel    own tokens x, w   others y, u   sees          for each block of others
//   forward   q                 k, v          the past      o += p(x y^T) u
//   dq        q, do             k, v          the past      dq += p'(x y^T) (w u^T - Delta)/den y
//   dkv       k, v              q, do         the future    dv += p(x y^T)/den u,  dk += p' (..)/den y
#pragma once

#include "ops/power/parallel/scores.cuh"

namespace horner::cuda {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// 1 / den of the warpgroup's rows, which the backward reads too; 1 without a normaliser, 0 after the end.
__device__ __forceinline__ void invert_sums(
    float (&factor)[2],
    const float (&den)[2],
    const PowerParallel& p,
    const Pairs& job,
    int own,
    const Place& at
) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t t = int64_t(own) * 64 + at.row + 8 * h;
    factor[h] = p.normalise ? 1.f / (p.clamps ? fmaxf(den[h], p.eps) : den[h]) : 1.f;
    if (t >= p.T) factor[h] = 0.f;
    const bool held = p.clamps && den[h] < p.eps;
    if (p.inverse && at.lane % 4 == 0 && t < p.padded)
      p.inverse[int64_t(job.bh) * p.padded + t] = held ? -factor[h] : factor[h];
  }
}

template <int kD, int kOrder, bool kDecay>
__device__ __forceinline__ void compute_o(
    const PowerParallel& p,
    const Pairs& job,
    int own,
    Memory<kD, Part::forward>& m,
    const unsigned char (*x)[kTileBytes]
) {
  const Place at;
  uint32_t q[kD / 16][4], pw[4][4];
  float X[32], O[kD / 64][32], d0 = 0.f, d1 = 0.f;
  barrier_wait(shared_address(&m.own), job.round & 1);
  load_own<kD>(q, x, at);
  free_own(m);
  Decays<false, kDecay> decays(p, job, own, at);
  walk<kD, Part::forward, 64, true>(
      job,
      m,
      [&](uint32_t y, uint32_t) { rows_by_rows<kD>(X, q, y); },
      [&](int other) {
        fence_registers(X);
        fence_all(O);
        const int offset = other - 64 * own;
        decays.meet(other);
#pragma unroll
        for (int e = 0; e < 32; e += 4) {
          Polynomial y = polynomial<kOrder, false>(p, X + e);
          if constexpr (kDecay) {
            float M[4];
            decays.weights(M, other + 2 * e + at.pair, offset + 2 * e + at.pair, at.row);
#pragma unroll
            for (int n = 0; n < 4; ++n) y.value[n] *= M[n];
          }
          pw[e / 8][e / 2 % 4] = pack(y.value[0], y.value[1]);
          pw[e / 8][e / 2 % 4 + 1] = pack(y.value[2], y.value[3]);
        }
        if (!kDecay && offset >= 0) hide<false>(pw, offset, at);
#pragma unroll
        for (int n = 0; n < 16; ++n) {  // den sums the same rounded weights as num
          const uint32_t both = pw[n / 4][n % 4];
          (n % 2 ? d1 : d0) += low_half(both) + high_half(both);
        }
      },
      [&](uint32_t, uint32_t u, bool add) { add_rows<kD>(O, pw, u, add); }
  );
  fence_all(O);
  const float den[2] = {quad_sum(d0), quad_sum(d1)};
  float factor[2];
  invert_sums(factor, den, p, job, own, at);
  store_own<kD>(O, factor[0], factor[1], p.o, false, job, int64_t(own) * 64, p.T, p.V, at);
  if (p.o_rest.data != nullptr)
    store_own<kD, true>(
        O, factor[0], factor[1], p.o_rest, false, job, int64_t(own) * 64, p.T, p.V, at
    );
}

// dx = p'(x y^T) (w u^T - Delta) M, in bf16; early: the sums of p M (w u^T - Delta) over the past, for dG.
template <int kOrder, bool kDecay>
__device__ __forceinline__ void weigh_dq(
    uint32_t (&dx)[4][4],
    float (&early)[2],
    const float (&X)[32],
    const float (&D)[32],
    const float (&delta)[2],
    const Decays<false, kDecay>& decays,
    const PowerParallel& p,
    int other,
    int offset,
    const Place& at
) {
#pragma unroll
  for (int e = 0; e < 32; e += 4) {
    const Polynomial y = polynomial<kOrder, true>(p, X + e);
    float d[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) d[n] = D[e + n] - delta[n / 2];
    if constexpr (kDecay) {
      float M[4];
      const int column = offset + 2 * e + at.pair;
      decays.weights(M, other + 2 * e + at.pair, column, at.row);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        d[n] *= M[n];
        if (column + n % 2 != at.row + 8 * (n / 2)) early[n / 2] += y.value[n] * d[n];
      }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) d[n] *= y.slope[n];
    dx[e / 8][e / 2 % 4] = pack(d[0], d[1]);
    dx[e / 8][e / 2 % 4 + 1] = pack(d[2], d[3]);
  }
  if (!kDecay && offset >= 0) hide<false>(dx, offset, at);
}

template <int kD, int kOrder, bool kDecay>
__device__ __forceinline__ void compute_dq(
    const PowerParallel& p, const Pairs& job, int own, Memory<kD, Part::dq>& m, int group
) {
  const Place at;
  uint32_t q[kD / 16][4], dx[4][4];
  float X[32], D[32], Y[kD / 64][32];
  barrier_wait(shared_address(&m.own), job.round & 1);
  load_own<kD>(q, m.x[group], at);
  constexpr bool kInside =
      kD == 64;  // do is in registers too: then shared memory feeds only one operand
  uint32_t w[kInside ? kD / 16 : 1][4];
  if constexpr (kInside) load_own<kD>(w, m.w[group], at);
  const int64_t t0 = int64_t(job.bh) * p.padded + int64_t(own) * 64 + at.row;
  const bool inside = int64_t(own) * 64 < p.padded;
  const float inverse[2] = {inside ? p.factor[t0] : 0.f, inside ? p.factor[t0 + 8] : 0.f};
  const float delta[2] = {inside ? p.delta[t0] : 0.f, inside ? p.delta[t0 + 8] : 0.f};
  Decays<false, kDecay> decays(p, job, own, at);
  float early[2] = {0.f, 0.f};
  walk<kD, Part::dq, 64, kD == 64>(
      job,
      m,
      [&](uint32_t y, uint32_t u) {
        rows_by_rows<kD>(X, q, y);
        if constexpr (kInside) {
          rows_by_rows<kD>(D, w, u);
        } else {
          rows_by_rows<kD>(D, shared_address(m.w[group]), u);
        }
      },
      [&](int other) {
        fence_registers(X);
        fence_registers(D);
        fence_all(Y);
        const int offset = other - 64 * own;
        decays.meet(other);
        weigh_dq<kOrder>(dx, early, X, D, delta, decays, p, other, offset, at);
      },
      [&](uint32_t y, uint32_t, bool add) { add_rows<kD>(Y, dx, y, add); }
  );
  fence_all(Y);
  free_own(m);
  store_own<kD>(Y, inverse[0], inverse[1], p.dq, false, job, int64_t(own) * 64, p.T, p.K, at);
  if constexpr (kDecay) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = quad_sum(early[h]) * inverse[h];
      if (inside && at.lane % 4 == 0) p.early[t0 + 8 * h] = sum;
    }
  }
}

// pw = p(x y^T) M / den and dx = p' M (w u^T - Delta) / den, in bf16; late: the sums of p M (..) / den over the future, for
// dG. inverse (1 / den), delta: of the others.
template <int kOrder, bool kDecay, int kColumns>
__device__ __forceinline__ void weigh_dkv(
    uint32_t (&pw)[kColumns / 16][4],
    uint32_t (&dx)[kColumns / 16][4],
    float (&late)[2],
    const float (&X)[kColumns / 2],
    const float (&D)[kColumns / 2],
    const float2 (&inverse)[kColumns / 8],
    const float2 (&delta)[kColumns / 8],
    const Decays<true, kDecay>& decays,
    const PowerParallel& p,
    int other,
    int offset,
    const Place& at
) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    Polynomial y = polynomial<kOrder, true>(p, X + 4 * j);
    const float2 f = inverse[j];
    float d[4];
#pragma unroll
    for (int n = 0; n < 4; ++n)
      d[n] = (D[4 * j + n] - (n % 2 ? delta[j].y : delta[j].x)) * (n % 2 ? f.y : f.x);
    if constexpr (kDecay) {
      float M[4];
      const int column = offset + 8 * j + at.pair;
      decays.weights(M, other + 8 * j + at.pair, column, at.row);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        y.value[n] *= M[n];
        if (column + n % 2 != at.row + 8 * (n / 2)) late[n / 2] += y.value[n] * d[n];
        d[n] *= M[n];
      }
    }
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
      const uint32_t both = pack(y.value[n], y.value[n + 1]);  // rounded as in num and den
      pw[j / 2][2 * (j % 2) + n / 2] = pack(low_half(both) * f.x, high_half(both) * f.y);
      dx[j / 2][2 * (j % 2) + n / 2] = pack(y.slope[n] * d[n], y.slope[n + 1] * d[n + 1]);
    }
  }
  if (!kDecay && offset < 64) {
    hide<true>(pw, offset, at);
    hide<true>(dx, offset, at);
  }
}

// sum_s w_ts dw_ts over the others of each own token, for dG.
__device__ __forceinline__ void store_sums(
    float* to,
    const float (&sums)[2],
    const PowerParallel& p,
    const Pairs& job,
    int own,
    const Place& at
) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = quad_sum(sums[h]);
    const int64_t s = int64_t(own) * 64 + at.row + 8 * h;
    if (s < p.padded && at.lane % 4 == 0) to[int64_t(job.bh) * p.padded + s] = sum;
  }
}

template <int kD, int kOrder, bool kDecay>
__device__ __forceinline__ void compute_dkv(
    const PowerParallel& p, const Pairs& job, int own, Memory<kD, Part::dkv>& m, int group
) {
  const Place at;
  constexpr int kColumns = kD == 64 ? 64 : 32;  // others at once: as many as registers allow
  uint32_t pw[kColumns / 16][4], dx[kColumns / 16][4];
  float X[kColumns / 2], D[kColumns / 2], dK[kD / 64][32], dV[kD / 64][32];
  barrier_wait(shared_address(&m.own), job.round & 1);
  const int64_t t0 = int64_t(job.bh) * p.padded + at.pair;
  float2 inverse[kColumns / 8], delta[kColumns / 8];  // of the others
  const auto fetch = [&](int other) {
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      inverse[j] = *reinterpret_cast<const float2*>(p.factor + t0 + other + 8 * j);
      delta[j] = *reinterpret_cast<const float2*>(p.delta + t0 + other + 8 * j);
    }
  };
  Decays<true, kDecay> decays(p, job, own, at);
  float late[2] = {0.f, 0.f};
  constexpr bool kAhead = kD == 64 && !kDecay;  // enough registers to load them early
  int next = 64 * job.start;
  walk<kD, Part::dkv, kColumns, false>(
      job,
      m,
      [&](uint32_t y, uint32_t u) {
        if (kAhead) fetch(next);
        next += kColumns;
        rows_by_rows<kD>(X, shared_address(m.x[group]), y);
        rows_by_rows<kD>(D, shared_address(m.w[group]), u);
      },
      [&](int other) {
        fence_registers(X);
        fence_registers(D);
        fence_all(dK);
        fence_all(dV);
        if (!kAhead) fetch(other);
        decays.meet(other);
        const int offset = other - 64 * own;
        weigh_dkv<kOrder, kDecay, kColumns>(
            pw, dx, late, X, D, inverse, delta, decays, p, other, offset, at
        );
      },
      [&](uint32_t y, uint32_t u, bool add) {
        add_rows<kD>(dV, pw, u, add);
        add_rows<kD>(dK, dx, y, add);
      }
  );
  fence_all(dK);
  fence_all(dV);
  free_own(m);
  store_own<kD>(dK, 1.f, 1.f, p.dk, p.wide, job, int64_t(own) * 64, p.T, p.K, at);
  store_own<kD>(dV, 1.f, 1.f, p.dv, p.wide, job, int64_t(own) * 64, p.T, p.V, at);
  if constexpr (kDecay) store_sums(p.late, late, p, job, own, at);
}

// A job is kGroups x 64 own tokens of one head. A warpgroup owns 64 of them; one more warpgroup loads, and runs ahead into
// the next job. There is one block per multiprocessor; blocks take the jobs in turn, the longest first.
template <int kD, Part kPart, int kOrder, bool kDecay>
__device__ void all_pairs(const PowerParallel& p, const ParallelMaps& maps, unsigned char* raw) {
  using P = Plan<kD, kPart>;
  Memory<kD, kPart>& m = *reinterpret_cast<Memory<kD, kPart>*>(raw);
  const int heads = int(p.B * p.H), blocks = int(p.padded / 64);
  const int parts = (blocks + P::kGroups - 1) / P::kGroups;
  const int group = int(threadIdx.x) / kGroup;
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&m.own));
    barrier_init(shared_address(&m.own_free), 4 * P::kGroups);
    for (int i = 0; i < P::kStages; ++i) {
      barrier_init(shared_address(&m.full[i]));
      barrier_init(shared_address(&m.empty[i]), 4 * P::kGroups);
    }
    fence_async_proxy();
  }
  __syncthreads();
  const auto for_jobs = [&](auto&& work) {
    Pairs job{};
    for (int n = int(blockIdx.x); n < heads * parts; n += int(gridDim.x)) {
      job.bh = n % heads;
      job.b = job.bh / int(p.H);
      job.h = job.bh % int(p.H);
      job.first = (kPart == Part::dkv ? n / heads : parts - 1 - n / heads) * P::kGroups;
      job.start = kPart == Part::dkv ? job.first : 0;
      job.count = kPart == Part::dkv ? blocks - job.first : min(job.first + P::kGroups, blocks);
      work(job);
      job.used += job.count;
      ++job.round;
    }
  };
  if (group == P::kGroups) {
    give_registers<P::kGroups == 3 ? 32 : 40>();
    if (threadIdx.x % kGroup == 0)
      for_jobs([&](const Pairs& job) { feed<kD, kPart>(p, maps, job, m); });
  } else {
    take_registers<P::kGroups == 3 ? 160 : 232>();
    for_jobs([&](const Pairs& job) {
      const int own = job.first + group;
      if constexpr (kPart == Part::forward)
        compute_o<kD, kOrder, kDecay>(p, job, own, m, m.x[group]);
      if constexpr (kPart == Part::dq) compute_dq<kD, kOrder, kDecay>(p, job, own, m, group);
      if constexpr (kPart == Part::dkv) compute_dkv<kD, kOrder, kDecay>(p, job, own, m, group);
    });
  }
}

#endif

}  // namespace
}  // namespace horner::cuda
