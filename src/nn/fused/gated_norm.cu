// y = xh w act(z),  xh = (x - m) r,  m the mean of the row (0 for rms),  r = 1 / sqrt(mean (x - m)^2 + eps)
//
// L threads have a row with 8 numbers each, as in add_norm.cu. The backward computes m and r again: x is in registers anyway.
#include "cuda/units.cuh"
#include "nn/fused/fused.cuh"
#include "nn/fused/rows.cuh"

namespace horner::cuda {
namespace {

enum Act { kNone = 0, kSilu = 1 };  // else sigmoid

// act(z) and act'(z)
__device__ float2 activation(int act, float z) {
  if (act == kNone) return make_float2(1.f, 0.f);
  const float s = sigmoid(z);
  return act == kSilu ? make_float2(z * s, s * (1.f + z * (1.f - s)))
                      : make_float2(s, s * (1.f - s));
}

// x becomes xh; returns r.
template <int L>
__device__ float standardise(
    float (&x)[kUnit], const GatedNormCall& p, bool own, RowSums<L>& sums
) {
  float sum = 0.f;
  if (p.layer) {
#pragma unroll
    for (int c = 0; c < kUnit; ++c) sum += x[c];
    const float mean = sums(sum) * p.inverse;
#pragma unroll
    for (int c = 0; c < kUnit; ++c) x[c] = own ? x[c] - mean : 0.f;
  }
  float square = 0.f;
#pragma unroll
  for (int c = 0; c < kUnit; ++c) square += x[c] * x[c];
  const float r = rsqrtf(sums(square) * p.inverse + p.eps);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) x[c] *= r;
  return r;
}

__device__ void load_weight(float (&w)[kUnit], const GatedNormCall& p, int64_t row, int column) {
#pragma unroll
  for (int c = 0; c < kUnit; ++c) w[c] = 1.f;
  if (p.weight != nullptr && column < p.n) load_unit(w, p.weight + row % p.heads * p.n + column);
}

template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    forward_kernel(const __grid_constant__ GatedNormCall p) {
  __shared__ float2 places[2][32];
  RowSums<L> sums{places};
  const int column = int(threadIdx.x % L) * kUnit;
  const int64_t row = int64_t(blockIdx.x) * rows_of_block(L) + threadIdx.x / L;
  const int64_t at = row * p.n + column;
  const bool own = row < p.rows && column < p.n;
  float x[kUnit] = {}, z[kUnit] = {}, w[kUnit];
  if (own) {
    load_unit(x, static_cast<const T*>(p.x) + at);
    if (p.gate != nullptr) load_unit(z, static_cast<const T*>(p.gate) + at);
  }
  load_weight(w, p, row, column);
  standardise(x, p, own, sums);
  if (!own) return;
#pragma unroll
  for (int c = 0; c < kUnit; ++c) x[c] *= w[c] * activation(p.act, z[c]).x;
  store_unit(static_cast<T*>(p.y) + at, x);
}

// d = dy w act(z):  dx = r (d - mean d - xh mean(d xh)),  without mean d for rms
// dz = dy xh w act'(z)        dw = sum over rows of dy xh act(z)
template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    backward_kernel(const __grid_constant__ GatedNormCall p) {
  __shared__ float2 places[2][32];
  RowSums<L> sums{places};
  const int column = int(threadIdx.x % L) * kUnit;
  float w[kUnit], dw[kUnit] = {};
  load_weight(w, p, threadIdx.x / L, column);  // a thread's rows have one head
  for (int64_t first = int64_t(blockIdx.x) * rows_of_block(L); first < p.rows;
       first += int64_t(gridDim.x) * rows_of_block(L)) {
    const int64_t row = first + threadIdx.x / L, at = row * p.n + column;
    const bool own = row < p.rows && column < p.n;
    float x[kUnit] = {}, z[kUnit] = {}, d[kUnit] = {};
    if (own) {
      load_unit(x, static_cast<const T*>(p.x) + at);
      if (p.gate != nullptr) load_unit(z, static_cast<const T*>(p.gate) + at);
      load_unit(d, static_cast<const T*>(p.dy) + at);
    }
    const float r = standardise(x, p, own, sums);
    float2 mean = make_float2(0.f, 0.f);  // of d xh, and of d
#pragma unroll
    for (int c = 0; c < kUnit; ++c) {
      const float2 a = activation(p.act, z[c]);
      z[c] = d[c] * x[c] * w[c] * a.y;
      d[c] *= a.x;
      dw[c] += d[c] * x[c];
      d[c] *= w[c];
      mean.x += d[c] * x[c];
      mean.y += d[c];
    }
    mean = sums(mean);
    if (!own) continue;
    const float back = mean.x * p.inverse, shift = p.layer ? mean.y * p.inverse : 0.f;
#pragma unroll
    for (int c = 0; c < kUnit; ++c) d[c] = r * (d[c] - shift - x[c] * back);
    store_unit(static_cast<T*>(p.dx) + at, d);
    if (p.gate != nullptr) store_unit(static_cast<T*>(p.dgate) + at, z);
  }
  if (p.dweight != nullptr)
    sum_rows<L>(dw, p.heads, p.n, p.dweight + int64_t(blockIdx.x) * p.heads * p.n);
}

struct Start {
  const GatedNormCall& p;
  bool back;
  cudaStream_t stream;
  template <class T, int L>
  void run() const {
    if (back) {
      backward_kernel<T, L><<<row_blocks(p.rows, p.n), row_threads(L), 0, stream>>>(p);
    } else {
      const auto blocks = unsigned((p.rows + rows_of_block(L) - 1) / rows_of_block(L));
      forward_kernel<T, L><<<blocks, row_threads(L), 0, stream>>>(p);
    }
  }
};

}  // namespace

bool gated_norm_takes(int n, int heads) {
  if (n > kWidestRow || n % kUnit != 0) return false;
  int L = 8;
  while (L * kUnit < n) L *= 2;
  return rows_of_block(L) % heads == 0;  // so that a thread's rows have one head
}

cudaError_t gated_norm_forward(const GatedNormCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, Start{p, false, stream});
}
cudaError_t gated_norm_backward(const GatedNormCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, Start{p, true, stream});
}

}  // namespace horner::cuda
