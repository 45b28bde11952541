// `power`, level 3: all pairs, blocks of 64 by 64 on Hopper's tensor cores, as a block of threads does them.
//
//   kernel    own tokens x, w   others y, u   sees          for each block of others
//   forward   q                 k, v          the past      o += p(x y^T) u
//   dq        q, do             k, v          the past      dq += p'(x y^T) (w u^T - Delta)/den y
//   dkv       k, v              q, do         the future    dv += p(x y^T)/den u,  dk += p' (..)/den y
#pragma once

#include "cuda/sm90.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kGroup = 128;

enum class Part { forward, dq, dkv };

// kD: dims of keys and values, in tiles of 64. A warpgroup has 64 own tokens.
template <int kD, Part kPart>
struct Plan {
  static constexpr int kTiles = kD / 64;
  static constexpr int kGroups = kD == 64 && kPart == Part::forward ? 3 : 2;
  static constexpr int kStages = kD == 64 ? 6 : kPart == Part::forward ? 5 : 3;
  static constexpr int kThreads = (kGroups + 1) * kGroup;
};

template <int kD, Part kPart>
struct Memory {
  using P = Plan<kD, kPart>;
  unsigned char x[P::kGroups][P::kTiles][kTileBytes];
  unsigned char w[kPart == Part::forward ? 0 : P::kGroups][P::kTiles][kTileBytes];
  unsigned char y[P::kStages][P::kTiles][kTileBytes];
  unsigned char u[P::kStages][P::kTiles][kTileBytes];
  uint64_t own, own_free, full[P::kStages], empty[P::kStages];
};

struct ParallelMaps {
  CUtensorMap q, k, v, dO;
};

struct Pairs {
  int b, h, bh;
  int first;         // own block of 64 tokens of the first group
  int start, count;  // blocks of others that any of the groups sees
  int round, used;   // jobs that this block of threads has done, and the stages they took
};

struct Place {
  int thread = threadIdx.x % kGroup, warp = thread / 32, lane = thread % 32;
  int row = 16 * warp + lane / 4, pair = 2 * (lane % 4);
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

template <int kD>
__device__ void load_block(
    unsigned char (*to)[kTileBytes],
    const CUtensorMap* map,
    uint32_t barrier,
    int head,
    int t,
    int b
) {
#pragma unroll
  for (int n = 0; n < kD / 64; ++n)
    load_tile(shared_address(to[n]), map, barrier, 64 * n, head, t, b);
}

// One thread feeds: own rows, then blocks of others as stages become free.
template <int kD, Part kPart>
__device__ __forceinline__ void feed(
    const PowerParallel& p, const ParallelMaps& maps, const Pairs& job, Memory<kD, kPart>& m
) {
  using P = Plan<kD, kPart>;
  constexpr bool kFuture = kPart == Part::dkv;
  constexpr int kBytes = P::kTiles * kTileBytes;
  const uint32_t own = shared_address(&m.own);
  const int key_head = job.h / p.k.group;
  if (job.round > 0) barrier_wait(shared_address(&m.own_free), (job.round - 1) & 1);
  barrier_expect(own, P::kGroups * kBytes * (kPart == Part::forward ? 1 : 2));
  for (int n = 0; n < P::kGroups; ++n) {
    const int t = 64 * (job.first + n);
    load_block<kD>(m.x[n], kFuture ? &maps.k : &maps.q, own, kFuture ? key_head : job.h, t, job.b);
    if constexpr (kPart != Part::forward)
      load_block<kD>(
          m.w[n], kFuture ? &maps.v : &maps.dO, own, kFuture ? key_head : job.h, t, job.b
      );
  }
  for (int i = 0; i < job.count; ++i) {
    const int use = job.used + i, stage = use % P::kStages;
    if (use >= P::kStages)
      barrier_wait(shared_address(&m.empty[stage]), (use / P::kStages - 1) & 1);
    const uint32_t full = shared_address(&m.full[stage]);
    barrier_expect(full, 2 * kBytes);
    const int t = 64 * (job.start + i);
    load_block<kD>(
        m.y[stage], kFuture ? &maps.q : &maps.k, full, kFuture ? job.h : key_head, t, job.b
    );
    load_block<kD>(
        m.u[stage], kFuture ? &maps.dO : &maps.v, full, kFuture ? job.h : key_head, t, job.b
    );
  }
}

// d (64 x 64 or 64 x 32) = a b^T over kD dims, a in registers or, like b, rows in shared memory.
template <int kD, int kCount>
__device__ __forceinline__ void rows_by_rows(
    float (&d)[kCount], const uint32_t (&a)[kD / 16][4], uint32_t b
) {
#pragma unroll
  for (int k = 0; k < kD / 16; ++k)
    product<false>(d, a[k], operand(b + (k / 4) * kTileBytes + (k % 4) * 32), k > 0);
}
template <int kD, int kCount>
__device__ __forceinline__ void rows_by_rows(float (&d)[kCount], uint32_t a, uint32_t b) {
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    const uint32_t step = (k / 4) * kTileBytes + (k % 4) * 32;
    product<false, false>(d, operand(a + step), operand(b + step), k > 0);
  }
}
// d = a b (+ d), a 64 x 16 kSteps in registers, b 16 kSteps rows of kD dims.
template <int kD, int kSteps>
__device__ __forceinline__ void add_rows(
    float (&d)[kD / 64][32], const uint32_t (&a)[kSteps][4], uint32_t b, bool add
) {
#pragma unroll
  for (int n = 0; n < kD / 64; ++n) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      product<true>(d[n], a[k], operand(b + n * kTileBytes + k * 2048), add || k > 0);
  }
}
template <int kTiles>
__device__ __forceinline__ void settle_all(float (&d)[kTiles][32]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) settle(d[n]);
}

template <int kD>
__device__ void load_own(
    uint32_t (&a)[kD / 16][4], const unsigned char (*tiles)[kTileBytes], const Place& at
) {
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    const int r = 16 * at.warp + at.lane % 16, unit = 2 * (k % 4) + at.lane / 16;
    load_matrices(a[k], shared_address(tiles[k / 4]) + tile_offset(r, unit));
  }
}

// p(x) and p'(x) of 4 scores by Horner's rule; kOrder 0: known at run time alone.
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

// 0 for pairs that do not see each other, of 64 own tokens and others that begin `offset` after them.
template <bool kFuture, int kSteps>
__device__ __forceinline__ void hide(uint32_t (&a)[kSteps][4], int offset, const Place& at) {
#pragma unroll
  for (int n = 0; n < 4 * kSteps; ++n) {
    const int row = at.row + 8 * (n % 2), column = 8 * (n / 2) + at.pair + offset;
    if (kFuture ? column < row : column > row) a[n / 4][n % 4] &= 0xffff0000u;
    if (kFuture ? column + 1 < row : column + 1 > row) a[n / 4][n % 4] &= 0x0000ffffu;
  }
}

__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// M_ts of a warpgroup's own tokens and others, 0 where they do not see each other.
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
  // Of 4 elements of an accumulator; other: the first of their two columns, which lies `column` after the first own row.
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

// Rows of a warpgroup to memory, (64 x kD) times a factor of each row. rest: what rounding to bf16 leaves of them.
template <int kD, bool kRest = false>
__device__ __forceinline__ void store_own(
    const float (&Y)[kD / 64][32],
    float f0,
    float f1,
    const PowerRows& to,
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

// The loop of a warpgroup over the others, kColumns of them at a time: begin(y, u) issues the products with them,
// middle(first other) turns them into weights, end(y, u, whether sums go on) issues what these weights sum; where
// registers allow, with the next products behind it. All groups take all blocks, so that the compiler sees one path. A
// stage is free when its last product is done.
template <int kD, Part kPart, int kColumns, bool kOverlap, class Begin, class Middle, class End>
__device__ __forceinline__ void walk(
    const Pairs& job, Memory<kD, kPart>& m, Begin&& begin, Middle&& middle, End&& end
) {
  using P = Plan<kD, kPart>;
  constexpr int kParts = 64 / kColumns;
  const auto use = [&](int i) { return job.used + i / kParts; };
  const auto wait = [&](int i) {
    if (i % kParts == 0)
      barrier_wait(shared_address(&m.full[use(i) % P::kStages]), use(i) / P::kStages & 1);
  };
  const auto release = [&](int i) {
    if (i % kParts == kParts - 1 && threadIdx.x % 32 == 0)
      barrier_arrive(shared_address(&m.empty[use(i) % P::kStages]));
  };
  const auto rows = [&](unsigned char(*tiles)[P::kTiles][kTileBytes], int i) {
    return shared_address(tiles[use(i) % P::kStages]) + (i % kParts) * kColumns * 128;
  };
  const int count = job.count * kParts;
  wait(0);
  product_fence();
  begin(rows(m.y, 0), rows(m.u, 0));
  product_commit();
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    product_wait<0>();
    middle(64 * job.start + kColumns * i);
    if (kOverlap && i > 0) release(i - 1);
    product_fence();
    end(rows(m.y, i), rows(m.u, i), i > 0);
    product_commit();
    if (!kOverlap) {
      product_wait<0>();
      release(i);
    }
    if (i + 1 < count) {
      wait(i + 1);
      product_fence();
      begin(rows(m.y, i + 1), rows(m.u, i + 1));
      product_commit();
    }
  }
  product_wait<0>();
  if (kOverlap) release(count - 1);
}

// The own rows in shared memory are no longer read by this warp.
template <class M>
__device__ __forceinline__ void free_own(M& m) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&m.own_free));
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
        settle(X);
        settle_all(O);
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
        for (int n = 0; n < 16; ++n) {  // den sums the weights that num has
          const uint32_t both = pw[n / 4][n % 4];
          (n % 2 ? d1 : d0) += low_half(both) + high_half(both);
        }
      },
      [&](uint32_t, uint32_t u, bool add) { add_rows<kD>(O, pw, u, add); }
  );
  settle_all(O);
  float den[2] = {quad_sum(d0), quad_sum(d1)}, factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t t = int64_t(own) * 64 + at.row + 8 * h;
    factor[h] = p.normalise ? 1.f / (p.clamps ? fmaxf(den[h], p.eps) : den[h]) : 1.f;
    if (t >= p.T) factor[h] = 0.f;
    const bool held = p.clamps && den[h] < p.eps;
    if (p.inverse && at.lane % 4 == 0 && t < p.padded)
      p.inverse[int64_t(job.bh) * p.padded + t] = held ? -factor[h] : factor[h];
  }
  store_own<kD>(O, factor[0], factor[1], p.o, false, job, int64_t(own) * 64, p.T, p.V, at);
  if (p.o_rest.data != nullptr)
    store_own<kD, true>(
        O, factor[0], factor[1], p.o_rest, false, job, int64_t(own) * 64, p.T, p.V, at
    );
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
      kD == 64;  // registers for do as well: shared memory feeds one operand alone
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
        settle(X);
        settle(D);
        settle_all(Y);
        const int offset = other - 64 * own;
        decays.meet(other);
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
      },
      [&](uint32_t y, uint32_t, bool add) { add_rows<kD>(Y, dx, y, add); }
  );
  settle_all(Y);
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

template <int kD, int kOrder, bool kDecay>
__device__ __forceinline__ void compute_dkv(
    const PowerParallel& p, const Pairs& job, int own, Memory<kD, Part::dkv>& m, int group
) {
  const Place at;
  constexpr int kColumns = kD == 64 ? 64 : 32;  // at once: as many as registers allow
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
  constexpr bool kAhead = kD == 64 && !kDecay;  // registers to have them before they are wanted
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
        settle(X);
        settle(D);
        settle_all(dK);
        settle_all(dV);
        if (!kAhead) fetch(other);
        decays.meet(other);
        const int offset = other - 64 * own;
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
            const uint32_t both = pack(y.value[n], y.value[n + 1]);  // as num and den had them
            pw[j / 2][2 * (j % 2) + n / 2] = pack(low_half(both) * f.x, high_half(both) * f.y);
            dx[j / 2][2 * (j % 2) + n / 2] = pack(y.slope[n] * d[n], y.slope[n + 1] * d[n + 1]);
          }
        }
        if (!kDecay && offset < 64) {
          hide<true>(pw, offset, at);
          hide<true>(dx, offset, at);
        }
      },
      [&](uint32_t y, uint32_t u, bool add) {
        add_rows<kD>(dV, pw, u, add);
        add_rows<kD>(dK, dx, y, add);
      }
  );
  settle_all(dK);
  settle_all(dV);
  free_own(m);
  store_own<kD>(dK, 1.f, 1.f, p.dk, p.wide, job, int64_t(own) * 64, p.T, p.K, at);
  store_own<kD>(dV, 1.f, 1.f, p.dv, p.wide, job, int64_t(own) * 64, p.T, p.V, at);
  if constexpr (kDecay) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = quad_sum(late[h]);
      const int64_t s = int64_t(own) * 64 + at.row + 8 * h;
      if (s < p.padded && at.lane % 4 == 0) p.late[int64_t(job.bh) * p.padded + s] = sum;
    }
  }
}

// A job is kGroups x 64 tokens of one head, one warpgroup each; another warpgroup feeds them, ahead into the next job.
// As many blocks as processors take the jobs in turn, the longest first.
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
