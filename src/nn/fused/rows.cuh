// How rows are shared by the threads of a block, for every fused kernel that norms rows.
#pragma once

#include "cuda/units.cuh"

namespace horner::cuda {

constexpr __host__ __device__ int row_threads(int L) { return L > 256 ? L : 256; }
constexpr __host__ __device__ int rows_of_block(int L) { return row_threads(L) / L; }

// Sums each thread's 8 numbers over the rows of a block, in their order. Row i of the block has head i % heads; `to`
// gets (heads,n).
template <int L>
__device__ void sum_rows(const float (&x)[kUnit], int heads, int n, float* to) {
  __shared__ float all[row_threads(L) * kUnit];
  __syncthreads();  // the call before may still be reading
#pragma unroll
  for (int c = 0; c < kUnit; ++c) all[threadIdx.x * kUnit + c] = x[c];
  __syncthreads();
  for (int i = int(threadIdx.x); i < heads * n; i += row_threads(L)) {
    float sum = 0.f;
    for (int row = i / n; row < rows_of_block(L); row += heads) sum += all[row * L * kUnit + i % n];
    to[i] = sum;
  }
}

// Calls start.run<T, L>() with the fewest threads L that hold a row of n numbers.
template <class T, class Start>
cudaError_t for_rows(int n, const Start& start) {
  const int threads = (n + kUnit - 1) / kUnit;
  if (threads <= 8)
    start.template run<T, 8>();
  else if (threads <= 16)
    start.template run<T, 16>();
  else if (threads <= 32)
    start.template run<T, 32>();
  else if (threads <= 64)
    start.template run<T, 64>();
  else if (threads <= 128)
    start.template run<T, 128>();
  else if (threads <= 256)
    start.template run<T, 256>();
  else if (threads <= 512)
    start.template run<T, 512>();
  else
    return cudaErrorInvalidValue;
  return cudaGetLastError();
}
template <class Start>
cudaError_t for_rows(bool bf16, int n, const Start& start) {
  return bf16 ? for_rows<__nv_bfloat16>(n, start) : for_rows<float>(n, start);
}

}  // namespace horner::cuda
