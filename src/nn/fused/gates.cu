// L threads have a row with 8 numbers each, as in add_norm.cu. gates.h has the equations.
#include "nn/fused/gates.cuh"

#include "cuda/units.cuh"
#include "nn/fused/fused.cuh"
#include "nn/fused/rows.cuh"

namespace horner::cuda {
namespace {

__device__ float softplus(float x) { return fmaxf(x, 0.f) + log1pf(__expf(-fabsf(x))); }

// b and c of a thread's columns; c with its factor -scale.
struct Columns {
  float b[kUnit], c[kUnit];
  __device__ Columns(const DecayCall& p, int column) {
#pragma unroll
    for (int i = 0; i < kUnit; ++i) b[i] = 0.f, c[i] = 1.f;
    if (column < p.n && p.b != nullptr) load_unit(b, p.b + column);
    if (column < p.n && p.c != nullptr) load_unit(c, p.c + column);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) c[i] *= -p.scale;
  }
};

template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    decay_kernel(const __grid_constant__ DecayCall p) {
  const int column = int(threadIdx.x % L) * kUnit;
  const int64_t row = int64_t(blockIdx.x) * rows_of_block(L) + threadIdx.x / L;
  if (row >= p.rows || column >= p.n) return;
  const Columns own(p, column);
  float z[kUnit];
  load_unit(z, static_cast<const T*>(p.z) + row * p.n + column);
#pragma unroll
  for (int i = 0; i < kUnit; ++i) z[i] = own.c[i] * softplus(p.sign * z[i] + own.b[i]);
  store_unit(p.g + row * p.n + column, z);
  if (p.k == nullptr) return;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) z[i] = -expm1f(z[i]);
  store_unit(static_cast<T*>(p.k) + row * p.n + column, z);
}

template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    decay_backward_kernel(const __grid_constant__ DecayCall p) {
  const int column = int(threadIdx.x % L) * kUnit;
  const Columns own(p, column);
  float db[kUnit] = {}, dc[kUnit] = {};
  for (int64_t row = int64_t(blockIdx.x) * rows_of_block(L) + threadIdx.x / L;
       row < p.rows && column < p.n;
       row += int64_t(gridDim.x) * rows_of_block(L)) {
    const int64_t at = row * p.n + column;
    float z[kUnit], d[kUnit], dk[kUnit] = {};
    load_unit(z, static_cast<const T*>(p.z) + at);
    load_unit(d, p.dg + at);
    if (p.dk != nullptr) load_unit(dk, static_cast<const T*>(p.dk) + at);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const float x = p.sign * z[i] + own.b[i];
      if (p.dk != nullptr) d[i] -= __expf(own.c[i] * softplus(x)) * dk[i];
      if (p.dc != nullptr) dc[i] -= p.scale * softplus(x) * d[i];
      d[i] *= own.c[i] * sigmoid(x);
      db[i] += d[i];
      d[i] *= p.sign;
    }
    store_unit(static_cast<T*>(p.dz) + at, d);
  }
  if (p.db != nullptr) sum_rows<L>(db, 1, p.n, p.db + int64_t(blockIdx.x) * p.n);
  if (p.dc != nullptr) sum_rows<L>(dc, 1, p.n, p.dc + int64_t(blockIdx.x) * p.n);
}

constexpr int kThreads = 256;  // of elementwise kernels; a thread has 8 numbers

template <class T>
__global__ void __launch_bounds__(kThreads) elu1_kernel(const __grid_constant__ Elu1Call p) {
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (at >= p.count) return;
  float z[kUnit], d[kUnit];
  load_unit(z, static_cast<const T*>(p.z) + at);
  if (p.dy != nullptr) load_unit(d, static_cast<const T*>(p.dy) + at);
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    const float slope = z[i] > 0.f ? 1.f : __expf(z[i]);
    z[i] = p.dy != nullptr ? d[i] * slope : fmaxf(z[i], 0.f) + slope;
  }
  store_unit(static_cast<T*>(p.out) + at, z);
}

template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    scale_kernel(const __grid_constant__ ScaleCall p) {
  const int column = int(threadIdx.x % L) * kUnit;
  const int64_t row = int64_t(blockIdx.x) * rows_of_block(L) + threadIdx.x / L;
  if (row >= p.rows || column >= p.n) return;
  float x[kUnit];
  load_unit(x, static_cast<const T*>(p.x) + row * p.n + column);
  const float s = p.s[row];
#pragma unroll
  for (int i = 0; i < kUnit; ++i) x[i] *= s;
  store_unit(static_cast<T*>(p.y) + row * p.n + column, x);
}

template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    scale_backward_kernel(const __grid_constant__ ScaleCall p) {
  __shared__ float2 places[2][32];
  RowSums<L> sums{places};
  const int column = int(threadIdx.x % L) * kUnit;
  const int64_t row = int64_t(blockIdx.x) * rows_of_block(L) + threadIdx.x / L;
  const bool own = row < p.rows && column < p.n;
  float x[kUnit] = {}, d[kUnit] = {}, dot = 0.f;
  if (own) {
    load_unit(x, static_cast<const T*>(p.x) + row * p.n + column);
    load_unit(d, static_cast<const T*>(p.dy) + row * p.n + column);
  }
#pragma unroll
  for (int i = 0; i < kUnit; ++i) dot += x[i] * d[i];
  dot = sums(dot);
  if (!own) return;
  const float s = p.s[row];
#pragma unroll
  for (int i = 0; i < kUnit; ++i) d[i] *= s;
  store_unit(static_cast<T*>(p.dx) + row * p.n + column, d);
  if (column == 0) p.ds[row] = dot;
}

struct StartDecay {
  const DecayCall& p;
  bool back;
  cudaStream_t stream;
  template <class T, int L>
  void run() const {
    const auto blocks = unsigned((p.rows + rows_of_block(L) - 1) / rows_of_block(L));
    if (back)
      decay_backward_kernel<T, L><<<row_blocks(p.rows, p.n), row_threads(L), 0, stream>>>(p);
    else
      decay_kernel<T, L><<<blocks, row_threads(L), 0, stream>>>(p);
  }
};

struct StartScale {
  const ScaleCall& p;
  bool back;
  cudaStream_t stream;
  template <class T, int L>
  void run() const {
    const auto blocks = unsigned((p.rows + rows_of_block(L) - 1) / rows_of_block(L));
    if (back)
      scale_backward_kernel<T, L><<<blocks, row_threads(L), 0, stream>>>(p);
    else
      scale_kernel<T, L><<<blocks, row_threads(L), 0, stream>>>(p);
  }
};

}  // namespace

cudaError_t decay_forward(const DecayCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, StartDecay{p, false, stream});
}
cudaError_t decay_backward(const DecayCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, StartDecay{p, true, stream});
}
cudaError_t elu1(const Elu1Call& p, cudaStream_t stream) {
  const auto blocks = unsigned((p.count + kThreads * kUnit - 1) / (kThreads * kUnit));
  if (p.bf16)
    elu1_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(p);
  else
    elu1_kernel<float><<<blocks, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}
cudaError_t scale_forward(const ScaleCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, StartScale{p, false, stream});
}
cudaError_t scale_backward(const ScaleCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, StartScale{p, true, stream});
}

}  // namespace horner::cuda
