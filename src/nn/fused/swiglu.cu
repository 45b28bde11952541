// y = SiLU(a) b. A thread has 8 numbers, a block 256 threads; nothing is shared.
#include "cuda/units.cuh"
#include "nn/fused/fused.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ SwigluCall p) {
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (at >= p.count) return;
  const int64_t from = p.stride > 0 ? at / p.width * p.stride + at % p.width : at;
  float a[kUnit], b[kUnit];
  load_unit(a, static_cast<const T*>(p.a) + from);
  load_unit(b, static_cast<const T*>(p.b) + from);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) b[c] *= a[c] * sigmoid(a[c]);
  store_unit(static_cast<T*>(p.y) + at, b);
}

// db = dy SiLU(a)        da = dy b SiLU'(a),  SiLU'(a) = s (1 + a (1 - s)),  s = sigmoid(a)
template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ SwigluCall p) {
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (at >= p.count) return;
  float a[kUnit], b[kUnit], d[kUnit];
  load_unit(a, static_cast<const T*>(p.a) + at);
  load_unit(b, static_cast<const T*>(p.b) + at);
  load_unit(d, static_cast<const T*>(p.dy) + at);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) {
    const float s = sigmoid(a[c]);
    b[c] *= d[c] * s * (1.f + a[c] * (1.f - s));
    d[c] *= a[c] * s;
  }
  store_unit(static_cast<T*>(p.da) + at, b);
  store_unit(static_cast<T*>(p.db) + at, d);
}

}  // namespace

cudaError_t swiglu_forward(const SwigluCall& p, cudaStream_t stream) {
  const auto blocks = unsigned((p.count + kThreads * kUnit - 1) / (kThreads * kUnit));
  if (p.bf16)
    forward_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(p);
  else
    forward_kernel<float><<<blocks, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t swiglu_backward(const SwigluCall& p, cudaStream_t stream) {
  const auto blocks = unsigned((p.count + kThreads * kUnit - 1) / (kThreads * kUnit));
  if (p.bf16)
    backward_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(p);
  else
    backward_kernel<float><<<blocks, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
