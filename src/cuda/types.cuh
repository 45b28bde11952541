// Element types: reading and writing them as the type that sums are kept in.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace horner::cuda {

template <class A>
__device__ A wide(double x) {
  return A(x);
}
template <class A>
__device__ A wide(float x) {
  return A(x);
}
template <class A>
__device__ A wide(__half x) {
  return A(__half2float(x));
}
template <class A>
__device__ A wide(__nv_bfloat16 x) {
  return A(__bfloat162float(x));
}

template <class T, class A>
__device__ T narrow(A x) {
  if constexpr (sizeof(T) == 2 && !__is_same(T, __half))
    return __float2bfloat16(float(x));
  else if constexpr (sizeof(T) == 2)
    return __float2half(float(x));
  else
    return T(x);
}

}  // namespace horner::cuda
