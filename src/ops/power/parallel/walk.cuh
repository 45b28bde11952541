// `power`, level 3: loading rows through shared memory, and the loop over blocks of others on the tensor cores.
#pragma once

#include "cuda/mma.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kGroup = 128;

enum class Part { forward, dq, dkv };

// kD: dims of keys and values, in tiles of 64. A warpgroup owns 64 tokens.
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
  int first;         // the own block of 64 tokens of the first warpgroup
  int start, count;  // blocks of others that any warpgroup sees
  int round, used;   // jobs that this block of threads has finished, and the stages they used
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

// One thread loads: own rows, then blocks of others as stages become free.
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

// d (64 x 64 or 64 x 32) = a b^T over kD dims. b: rows in shared memory; a: in registers or in shared memory.
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
__device__ __forceinline__ void fence_all(float (&d)[kTiles][32]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) fence_registers(d[n]);
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

// The loop of a warpgroup over the others, kColumns at a time. begin(y, u) issues the products with them. middle(first
// other) turns the products into weights. end(y, u, add) issues the sums with these weights. kOverlap: the next products
// are issued right after the sums; this needs registers. All warpgroups take all blocks of others, so that the compiler
// sees one path. A stage is free when its last product is done.
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

// This warp has finished reading the own rows in shared memory.
template <class M>
__device__ __forceinline__ void free_own(M& m) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&m.own_free));
}

#endif

}  // namespace
}  // namespace horner::cuda
