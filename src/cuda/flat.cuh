// A contiguous matrix of F rows of C numbers, read in units of 16 bytes.
#pragma once

#include "cuda/sm90.cuh"

namespace horner::cuda {

// C may be any number, so rows and matrices need not start at a unit. Thread t owns units t, t + stride, ... 4 stride is a
// multiple of C, so all units of a thread hold the same four columns, `rows` rows apart. Up to 3 numbers at either end of
// the matrix belong to no unit: they are loose.
struct Flat {
  int C, count, stride, rows;
  float inverse;  // 1 / C

  Flat(int F, int columns, int threads) : C(columns), count(F * columns) {
    stride = threads / least(C) * least(C);
    rows = 4 * stride / C;
    inverse = 1.f / float(C);
  }
  static int least(int C) { return C % 4 == 0 ? C / 4 : C % 2 == 0 ? C / 2 : C; }  // threads

  __device__ int row(int i) const {
    return int((float(i) + 0.5f) * inverse);
  }  // i / C, exact for up to 2^13 rows
};

// One matrix of several that follow each other in memory, and one thread's units of it.
struct FlatPart {
  int64_t offset;
  int lead, units, tail;  // loose numbers at the start, units, loose numbers at the end
  int mine;

  __device__ FlatPart(const Flat& flat, int matrix, int t)
      : offset(int64_t(matrix) * flat.count), lead(min(int(-offset & 3), flat.count)) {
    units = (flat.count - lead) / 4;
    tail = flat.count - lead - 4 * units;
    mine = t < flat.stride ? (units - t + flat.stride - 1) / flat.stride : 0;
  }
};

// Streams a thread's units through kRing places of shared memory. A thread reads only what it fetched, so no barrier.
template <int kThreads, int kRing>
struct FlatStream {
  float4* places;     // this thread owns every kThreads-th place
  const float* from;  // its first unit; null: all units are zero
  int mine, stride;

  __device__ void fetch(int i) const {
    if (i < mine)
      copy_async(
          shared_address(places + i % kRing * kThreads), from + 4 * i * stride, from != nullptr
      );
    copy_commit();
  }
  __device__ void start() const {
#pragma unroll
    for (int i = 0; i < kRing; ++i) fetch(i);
  }
  __device__ float4 take(int i) const {  // call with i = 0, 1, 2, ..
    copy_wait<kRing - 1>();
    const float4 unit = places[i % kRing * kThreads];
    fetch(i + kRing);
    return unit;
  }
};

}  // namespace horner::cuda
