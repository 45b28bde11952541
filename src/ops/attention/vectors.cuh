// 16 bytes of a row as fp32, and back.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace horner::cuda {

__device__ inline void unpack(const uint4& x, float (&y)[8], __nv_bfloat16) {
  const unsigned part[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    y[2 * i] = __uint_as_float(part[i] << 16);
    y[2 * i + 1] = __uint_as_float(part[i] & 0xffff0000u);
  }
}
__device__ inline void unpack(const uint4& x, float (&y)[8], __half) {
  const __half2* part = reinterpret_cast<const __half2*>(&x);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __half22float2(part[i]);
    y[2 * i] = two.x, y[2 * i + 1] = two.y;
  }
}
__device__ inline void unpack(const uint4& x, float (&y)[4], float) {
  y[0] = __uint_as_float(x.x), y[1] = __uint_as_float(x.y);
  y[2] = __uint_as_float(x.z), y[3] = __uint_as_float(x.w);
}

__device__ inline uint4 pack(const float (&y)[8], __nv_bfloat16) {
  uint4 x;
  __nv_bfloat162* part = reinterpret_cast<__nv_bfloat162*>(&x);
#pragma unroll
  for (int i = 0; i < 4; ++i) part[i] = __floats2bfloat162_rn(y[2 * i], y[2 * i + 1]);
  return x;
}
__device__ inline uint4 pack(const float (&y)[8], __half) {
  uint4 x;
  __half2* part = reinterpret_cast<__half2*>(&x);
#pragma unroll
  for (int i = 0; i < 4; ++i) part[i] = __floats2half2_rn(y[2 * i], y[2 * i + 1]);
  return x;
}

// Volatile: what is read twice is loaded twice, not held in registers.
__device__ inline uint4 load_shared(uint32_t address) {
  uint4 x;
  asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

// The sum over L neighbouring lanes, in all of them.
template <int L>
__device__ inline float lane_sum(float x) {
#pragma unroll
  for (int d = L / 2; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}

// The sums of 8 numbers over L neighbouring lanes. Lane l of them gets the sum of number 8 l / L.
template <int L>
__device__ inline float lane_sums(float (&x)[8]) {
  const auto half = [&](int n, int d) {  // a lane goes on with n of its 2 n numbers
    const bool upper = threadIdx.x & d;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float sent = upper ? x[i] : x[i + n], kept = upper ? x[i + n] : x[i];
      x[i] = kept + __shfl_xor_sync(~0u, sent, d);
    }
  };
  half(4, L / 2);
  half(2, L / 4);
  half(1, L / 8);
  return lane_sum<L / 8>(x[0]);
}
// What lane_sums gave the lanes of number i.
template <int L>
__device__ inline float from_number(float x, int i) {
  return __shfl_sync(~0u, x, i * (L / 8), L);
}

}  // namespace horner::cuda
