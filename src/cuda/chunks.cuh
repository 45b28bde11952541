// Cutting a batch, plain or packed, into chunks of 64 tokens; and which elements of a warp's product a thread holds.
#pragma once

#include <cuda_bf16.h>

#include "cuda/rows.h"
#include "cuda/sm90.cuh"

namespace horner::cuda {
namespace {

// Lane l holds rows r = l / 4 and r + 8, columns 2 i and 2 i + 1 of a product (mma.cuh), i = l % 4.
struct Place {
  int thread, warp, lane, r, i;
  __device__ explicit Place(int n)
      : thread(n), warp(n / 32), lane(n % 32), r(n % 32 / 4), i(n % 4) {}
};

// One sequence of the batch, or of a packed batch.
struct Span {
  int64_t b, first;  // batch row, first token
  int64_t tokens;
  int64_t slot;  // slot of its first chunk
};

__device__ inline Span span_at(const Sequences& p, int64_t n) {
  if (!p.starts) return {n, 0, p.T, n * ((p.T + kChunk - 1) / kChunk)};
  const int64_t first = p.starts[n];
  return {0, first, p.starts[n + 1] - first, first / kChunk + n};
}

// A chunk of a sequence.
struct Chunk {
  int64_t b, first;
  int rows;  // tokens in it; <= 0: none, the slot is empty
};

__device__ inline Chunk chunk_at(const Span& s, int64_t n) {
  const int64_t rows = s.tokens - n * kChunk;
  return {s.b, s.first + n * kChunk, int(rows < kChunk ? rows : kChunk)};
}

__device__ inline Chunk chunk_at(const Sequences& p, unsigned slot) {
  if (!p.starts) {
    const unsigned chunks =
        unsigned(p.T + kChunk - 1) / kChunk;  // 32 bits: a 64-bit division costs 100 instructions
    return chunk_at(span_at(p, slot / chunks), slot % chunks);
  }
  int64_t low = 0, high = p.count;  // the last sequence whose first slot is <= slot
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (p.starts[middle] / kChunk + middle <= slot ? low : high) = middle;
  }
  const Span s = span_at(p, low);
  return chunk_at(s, slot - s.slot);
}

// A query head, and the key/value head that its group shares.
struct Heads {
  int own, shared;
  __device__ Heads(int h, int group) : own(h), shared(group == 1 ? h : h / group) {}
  __device__ int of(const Rows& x) const { return x.group == 1 ? own : shared; }
};

template <class T>
__device__ T* at(const Rows& x, const Chunk& c, const Heads& h) {
  return static_cast<T*>(x.data) + c.b * x.b + c.first * x.t + h.of(x) * x.h;
}

__device__ inline uint32_t word(uint4 x, int j) {
  return j == 0 ? x.x : j == 1 ? x.y : j == 2 ? x.z : x.w;
}
__device__ inline uint4 either(
    bool first, uint4 a, uint4 b
) {  // by value: a reference would force the operands out of registers
  return {first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w};
}
__device__ inline float element(uint4 x, int n) {  // the n-th of 8 bf16
  return n % 2 ? high_half(word(x, n / 2)) : low_half(word(x, n / 2));
}
}  // namespace
}  // namespace horner::cuda
