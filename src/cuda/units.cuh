// Units of 8 numbers: one thread's share of a row. Loads and stores take 16 bytes at a time; sums run over the rows of a block.
#pragma once

#include "cuda/types.cuh"

namespace horner::cuda {

constexpr int kUnit = 8;

template <class T>
__device__ void load_unit(float (&x)[kUnit], const T* from) {
  constexpr int kPieces = kUnit * int(sizeof(T)) / 16;
  uint4 bits[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) bits[i] = reinterpret_cast<const uint4*>(from)[i];
  const T* all = reinterpret_cast<const T*>(bits);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) x[c] = wide<float>(all[c]);
}

template <class T>
__device__ void store_unit(T* to, const float (&x)[kUnit]) {
  constexpr int kPieces = kUnit * int(sizeof(T)) / 16;
  uint4 bits[kPieces];
  T* all = reinterpret_cast<T*>(bits);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) all[c] = narrow<T>(x[c]);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) reinterpret_cast<uint4*>(to)[i] = bits[i];
}

// Sums over the L threads of a row; every thread gets them. Rows of more than a warp meet in shared memory. Two sets of
// places take turns, so one barrier per sum is enough. All threads of a block must call it equally often.
template <int L>
struct RowSums {
  float2 (*places)[32];  // [2][32] in shared memory
  int turn = 0;

  __device__ float2 operator()(float2 x) {
#pragma unroll
    for (int step = (L < 32 ? L : 32) / 2; step > 0; step /= 2) {
      x.x += __shfl_xor_sync(~0u, x.x, step);
      x.y += __shfl_xor_sync(~0u, x.y, step);
    }
    if constexpr (L > 32) {
      float2* own = places[turn++ & 1];
      if (threadIdx.x % 32 == 0) own[threadIdx.x / 32] = x;
      __syncthreads();
      x = make_float2(0.f, 0.f);
#pragma unroll
      for (int i = 0; i < L / 32; ++i) {
        const float2 part = own[threadIdx.x / L * (L / 32) + i];
        x.x += part.x;
        x.y += part.y;
      }
    }
    return x;
  }
  __device__ float operator()(float x) { return (*this)(make_float2(x, 0.f)).x; }
};

__device__ inline float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

}  // namespace horner::cuda
