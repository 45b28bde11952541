// `linear`, level 2: what a block works on, and the place of a thread in it.
#pragma once

#include "cuda/mma.cuh"
#include "ops/linear/chunked/maps.cuh"

namespace horner::cuda {
namespace {

constexpr int kGroup = 128;  // threads of a warpgroup

// What a block works on.
struct Job {
  int b, h, bh;
  int block, blocks;        // of columns
  int first_column, width;  // of the block
  int part;                 // of the time
  int first_chunk, chunks;  // of the part, in the sweep's direction
};

__device__ inline Job job_at(const Sweep& p, unsigned index) {
  const int blocks = (p.N + 63) / 64, block = int(index) % blocks, heads = int(p.B * p.H);
  const int part = int(index) / blocks / heads, bh = int(index) / blocks % heads;
  const int all = int((p.T + 63) / 64), each = (all + p.parts - 1) / p.parts, begin = part * each;
  Job job;
  job.b = bh / int(p.H);
  job.h = bh % int(p.H);
  job.bh = bh;
  job.block = block;
  job.blocks = blocks;
  job.first_column = 64 * block;
  job.width = min(64, p.N - 64 * block);
  job.part = part;
  job.first_chunk = p.reverse ? all - 1 - begin : begin;
  job.chunks = min(each, all - begin);
  return job;
}

template <class T>
__device__ T* head(const Rows& x, const Job& job) {
  return static_cast<T*>(x.data) + job.b * x.b + (job.h / x.group) * x.h;
}

// The place of a thread in its warpgroup: it has rows `row` and `row` + 8 and columns 8 j + `pair`, + 1 of
// an accumulator; in a store or load of four 8x8 matrices it gives the address of one row.
struct Place {
  int thread, warp, lane, row, pair;
  __device__ explicit Place(int index = threadIdx.x)
      : thread(index % kGroup),
        warp(thread / 32),
        lane(thread % 32),
        row(16 * warp + lane / 4),
        pair(2 * (lane % 4)) {}
  // The same, unknown to the compiler: addresses made of it are made anew and not kept in registers.
  __device__ static Place opaque() { return Place(cuda::opaque(int(threadIdx.x))); }
};

template <bool kReverse>
__device__ int chunk_at(const Job& job, int i) {
  return kReverse ? job.first_chunk - i : job.first_chunk + i;
}
__device__ int tokens_in(const Sweep& p, int chunk) {
  return int(min(int64_t(64), p.T - int64_t(chunk) * 64));
}

}  // namespace
}  // namespace horner::cuda
