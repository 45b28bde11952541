#include "nn/position/rotate.cuh"

#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 256;

// A block owns 256 consecutive pairs of the flat (B T H, P), a thread one pair; nothing is shared.
template <class T>
__global__ void rotate_kernel(Rotate p) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.B * p.T * p.H * p.P) return;
  const int64_t j = i % p.P, row = i / p.P;  // row = (b T + t) H + h
  const int64_t h = row % p.H, token = row / p.H;
  const int64_t at = p.per_row ? token : token % p.T;
  const int64_t angle = (p.per_head ? at * p.H + h : at) * p.P + j;
  const T* x = static_cast<const T*>(p.x) + row * 2 * p.P + j;
  T* y = static_cast<T*>(p.y) + row * 2 * p.P + j;
  const float a = wide<float>(x[0]), b = wide<float>(x[p.P]);
  const float c = p.c[angle], s = p.sign * p.s[angle];
  y[0] = narrow<T>(a * c - b * s);    // y_j = x_j c - x_{j+P} s
  y[p.P] = narrow<T>(a * s + b * c);  // y_{j+P} = x_j s + x_{j+P} c
}

}  // namespace

cudaError_t rotate(const Rotate& p, cudaStream_t stream) {
  const auto blocks = unsigned((p.B * p.T * p.H * p.P + kThreads - 1) / kThreads);
  if (p.bf16) {
    rotate_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(p);
  } else {
    rotate_kernel<float><<<blocks, kThreads, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace horner::cuda
