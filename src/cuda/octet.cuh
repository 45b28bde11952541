// Eight numbers as they lie in memory: one or two loads of 16 bytes.
#pragma once

#include <cuda_bf16.h>

#include "cuda/sm90.cuh"

namespace horner::cuda {

template <class T>
struct Octet;

template <>
struct Octet<float> {
  float4 a, b;
  __device__ static Octet read(const float* from) {
    const auto* units = reinterpret_cast<const float4*>(from);
    return {units[0], units[1]};
  }
  __device__ void write(float* to) const {
    auto* units = reinterpret_cast<float4*>(to);
    units[0] = a;
    units[1] = b;
  }
  __device__ void unpack(float (&x)[8]) const {
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
  }
  __device__ static Octet pack(const float (&x)[8]) {
    return {{x[0], x[1], x[2], x[3]}, {x[4], x[5], x[6], x[7]}};
  }
};

template <>
struct Octet<__nv_bfloat16> {
  uint4 raw;
  __device__ static Octet read(const __nv_bfloat16* from) {
    return {*reinterpret_cast<const uint4*>(from)};
  }
  __device__ void write(__nv_bfloat16* to) const { *reinterpret_cast<uint4*>(to) = raw; }
  __device__ void unpack(float (&x)[8]) const {
    const unsigned pairs[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = low_half(pairs[i]);
      x[2 * i + 1] = high_half(pairs[i]);
    }
  }
  __device__ static Octet pack(const float (&x)[8]) {
    return {
        {cuda::pack(x[0], x[1]),
         cuda::pack(x[2], x[3]),
         cuda::pack(x[4], x[5]),
         cuda::pack(x[6], x[7])}};
  }
};

}  // namespace horner::cuda
