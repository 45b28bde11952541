// How the kernels of InLine attention's sums walk over time: a block owns one head of one batch row. L = K / 8 lanes own a token
// of a warp, with 8 channels each, and 2 or 4 tokens that follow each other. Sums over time: over a thread's tokens, over the
// threads of a warp, over the warps in their order, and a carry in registers. Backwards in time the tokens are counted from
// the end.
#pragma once

#include "cuda/units.cuh"
#include "nn/inline_sums/inline_sums.cuh"

namespace horner::cuda {
namespace {

using T16 = __nv_bfloat16;
constexpr int kThreads = 256, kWarps = kThreads / 32, kTaps = kInlineTaps;
constexpr int kEach = 4, kFew = 2;  // tokens of a thread; kFew where it reads the taps, too

__device__ uint4 fetch(const T16* from, bool there) {
  return there ? __ldg(reinterpret_cast<const uint4*>(from)) : uint4{0, 0, 0, 0};
}
__device__ void unpack(float (&x)[kUnit], const uint4& bits) {
  const T16* all = reinterpret_cast<const T16*>(&bits);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) x[c] = wide<float>(all[c]);
}
__device__ uint4 packed(const float (&x)[kUnit]) {
  uint4 bits;
  T16* all = reinterpret_cast<T16*>(&bits);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) all[c] = narrow<T16>(x[c]);
  return bits;
}
__device__ void keep(T16* to, const uint4& bits) { *reinterpret_cast<uint4*>(to) = bits; }

__device__ void add(float (&x)[kUnit], const float (&y)[kUnit], float factor = 1.f) {
#pragma unroll
  for (int c = 0; c < kUnit; ++c) x[c] += factor * y[c];
}
__device__ float dot(const float (&x)[kUnit], const float (&y)[kUnit]) {
  float sum = 0.f;
#pragma unroll
  for (int c = 0; c < kUnit; ++c) sum += x[c] * y[c];
  return sum;
}
template <int L>
__device__ float over_head(float x) {
#pragma unroll
  for (int step = L / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

template <int L, int kOwn = kEach>
struct Place {
  static constexpr int kTokens = kThreads / L * kOwn;  // of a block at once
  int64_t b;
  int h, column, first;  // first: of the thread's tokens, within the block's
  __device__ explicit Place(const InlineShape& s)
      : b(int64_t(blockIdx.x) / s.H),
        h(int(int64_t(blockIdx.x) % s.H)),
        column(int(threadIdx.x) % L * kUnit),
        first(int(threadIdx.x) / L * kOwn) {}
  __device__ int64_t row(const InlineShape& s, int64_t t) const {  // of (B,T,H)
    return (b * s.T + t) * s.H + h;
  }
  __device__ int64_t at(const InlineShape& s, int64_t t) const {  // of (B,T,H,K)
    return row(s, t) * s.K + column;
  }
  __device__ int64_t by_head(const InlineShape& s, int64_t t) const {  // row of (H,B,T)
    return (h * s.B + b) * s.T + t;
  }
};

// Sums over the threads before: x, a thread's own sum, becomes the sum of all tokens before its own.
template <int L>
struct Before {
  float (*totals
  )[kWarps][L * kUnit];  // [2] in shared memory: two calls take turns, with one barrier each
  int turn = 0;
  float carry[kUnit] = {};

  __device__ void operator()(float (&x)[kUnit]) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll
    for (int step = L; step < 32; step *= 2) {
#pragma unroll
      for (int c = 0; c < kUnit; ++c) {
        const float below = __shfl_up_sync(~0u, x[c], step);
        if (lane >= step) x[c] += below;
      }
    }
    float(&own)[kWarps][L * kUnit] = totals[turn++ & 1];
    if (lane >= 32 - L) {
#pragma unroll
      for (int c = 0; c < kUnit; ++c) own[warp][lane % L * kUnit + c] = x[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kUnit; ++c) {
      const float below = __shfl_up_sync(~0u, x[c], L);
      x[c] = lane >= L ? below : 0.f;
    }
    add(x, carry);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      float total[kUnit];
#pragma unroll
      for (int c = 0; c < kUnit; ++c) total[c] = own[w][lane % L * kUnit + c];
      if (w < warp) add(x, total);
      add(carry, total);
    }
  }
};

dim3 blocks(const InlineShape& s, int directions = 1) {
  return {unsigned(s.B * s.H), unsigned(directions)};
}

// start.run<L>() with the L lanes of a head.
template <class Start>
cudaError_t for_head(const InlineShape& s, const Start& start) {
  switch (s.K) {
    case 16: start.template run<2>(); break;
    case 32: start.template run<4>(); break;
    case 64: start.template run<8>(); break;
    case 128: start.template run<16>(); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace
}  // namespace horner::cuda
