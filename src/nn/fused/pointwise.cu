// A block owns 256 columns of every parts-th group of 8 rows, a warp one of the 8 rows, a thread 8 columns. The sums over
// rows stay in registers and meet in shared memory at the end.
#include "nn/fused/pointwise.cuh"

#include "cuda/units.cuh"

namespace horner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kColumns = 32 * kUnit;  // of a block

template <class T>
__device__ void load_either(float (&x)[kUnit], const void* from, int64_t at, bool wide) {
  if (wide)
    load_unit(x, static_cast<const float*>(from) + at);
  else
    load_unit(x, static_cast<const T*>(from) + at);
}
template <class T>
__device__ void store_either(void* to, int64_t at, const float (&x)[kUnit], bool wide) {
  if (wide)
    store_unit(static_cast<float*>(to) + at, x);
  else
    store_unit(static_cast<T*>(to) + at, x);
}

// What a thread has of a row: the inputs, the columns' weights, and the results or their gradients.
template <class F>
struct Unit {
  float x[F::kIn][kUnit], c[F::kColumns + 1][kUnit], y[F::kOut][kUnit];

  // One number's inputs as the functions want them.
  __device__ void take(int i, float (&xs)[F::kIn], float (&cs)[F::kColumns + 1]) const {
#pragma unroll
    for (int j = 0; j < F::kIn; ++j) xs[j] = x[j][i];
#pragma unroll
    for (int j = 0; j < F::kColumns; ++j) cs[j] = c[j][i];
  }
};

template <class T, class F>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ PointwiseCall p) {
  const int column = int(blockIdx.y) * kColumns + int(threadIdx.x % 32) * kUnit;
  if (column >= p.n) return;
  Unit<F> u;
#pragma unroll
  for (int j = 0; j < F::kColumns; ++j) load_unit(u.c[j], p.c[j] + column);
  for (int64_t row = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32; row < p.rows;
       row += int64_t(gridDim.x) * kWarps) {
#pragma unroll
    for (int j = 0; j < F::kIn; ++j)
      load_either<T>(u.x[j], p.x[j], row * p.row_of[j] + column, (F::kWideIn >> j & 1) != 0);
    const float of_row = F::kRows > 0 ? p.row[row] : 0.f;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      float x[F::kIn], c[F::kColumns + 1], y[F::kOut];
      u.take(i, x, c);
      F::forward(x, c, &of_row, y);
#pragma unroll
      for (int j = 0; j < F::kOut; ++j) u.y[j][i] = y[j];
    }
#pragma unroll
    for (int j = 0; j < F::kOut; ++j)
      store_either<T>(p.y[j], row * p.n + column, u.y[j], F::kWideOut);
  }
}

template <class T, class F>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __grid_constant__ PointwiseCall p) {
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int column = int(blockIdx.y) * kColumns + lane * kUnit;
  const bool own = column < p.n;
  float sums[F::kColumns + 1][kUnit] = {};
  Unit<F> u;
#pragma unroll
  for (int j = 0; j < F::kColumns; ++j)
    if (own) load_unit(u.c[j], p.c[j] + column);
  for (int64_t row = int64_t(blockIdx.x) * kWarps + warp; own && row < p.rows;
       row += int64_t(gridDim.x) * kWarps) {
#pragma unroll
    for (int j = 0; j < F::kIn; ++j)
      load_either<T>(u.x[j], p.x[j], row * p.row_of[j] + column, (F::kWideIn >> j & 1) != 0);
#pragma unroll
    for (int j = 0; j < F::kOut; ++j)
      load_either<T>(u.y[j], p.y[j], row * p.n + column, F::kWideOut);
    const float of_row = F::kRows > 0 ? p.row[row] : 0.f;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      float x[F::kIn], c[F::kColumns + 1], dy[F::kOut], dx[F::kIn], dc[F::kColumns + 1];
      u.take(i, x, c);
#pragma unroll
      for (int j = 0; j < F::kOut; ++j) dy[j] = u.y[j][i];
      F::backward(x, c, &of_row, dy, dx, dc);
#pragma unroll
      for (int j = 0; j < F::kIn; ++j) u.x[j][i] = dx[j];
#pragma unroll
      for (int j = 0; j < F::kColumns; ++j) sums[j][i] += dc[j];
    }
#pragma unroll
    for (int j = 0; j < F::kIn; ++j)
      store_either<T>(p.dx[j], row * p.n + column, u.x[j], (F::kWideIn >> j & 1) != 0);
  }
  __shared__ float all[kWarps][kColumns];
#pragma unroll
  for (int j = 0; j < F::kColumns; ++j) {  // the sums of the warps, in their order
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kUnit; ++i) all[warp][lane * kUnit + i] = sums[j][i];
    __syncthreads();
    const int c = int(blockIdx.y) * kColumns + int(threadIdx.x);
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += all[w][threadIdx.x];
    if (c < p.n) p.dc[j][int64_t(blockIdx.x) * p.n + c] = sum;
  }
}
static_assert(kThreads == kColumns);

template <class T, class F>
cudaError_t start(const PointwiseCall& p, cudaStream_t stream) {
  const dim3 grid(unsigned(p.parts), unsigned((p.n + kColumns - 1) / kColumns));
  if (p.backward)
    backward_kernel<T, F><<<grid, kThreads, 0, stream>>>(p);
  else
    forward_kernel<T, F><<<grid, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}
template <class F>
cudaError_t start(const PointwiseCall& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16, F>(p, stream) : start<float, F>(p, stream);
}

}  // namespace

cudaError_t pointwise(Pointwise f, const PointwiseCall& p, cudaStream_t stream) {
  return with_function(f, [&](auto own) { return start<decltype(own)>(p, stream); });
}

}  // namespace horner::cuda
