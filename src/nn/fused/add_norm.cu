// A row of n numbers has L threads with 8 numbers each, a block the rows that 256 threads hold (one, if n > 2048). Nothing
// but the sums over rows of more than a warp goes through shared memory.
#include "cuda/units.cuh"
#include "nn/fused/fused.cuh"
#include "nn/fused/rows.cuh"

namespace horner::cuda {
namespace {

template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    forward_kernel(const __grid_constant__ AddNormCall p) {
  __shared__ float2 places[2][32];
  RowSums<L> sums{places};
  const int column = int(threadIdx.x % L) * kUnit;
  const int64_t row = int64_t(blockIdx.x) * rows_of_block(L) + threadIdx.x / L;
  const bool own = row < p.rows && column < p.n;
  const int64_t at = row * p.n + column;
  float x[kUnit] = {}, y[kUnit];
  if (own) {
    load_unit(x, p.x + at);
    if (p.y != nullptr) {
      load_unit(y, static_cast<const T*>(p.y) + at);
#pragma unroll
      for (int c = 0; c < kUnit; ++c) x[c] += y[c];
      store_unit(p.sum + at, x);
    }
  }
  float square = 0.f;
#pragma unroll
  for (int c = 0; c < kUnit; ++c) square += x[c] * x[c];
  const float r = rsqrtf(sums(square) * p.inverse + p.eps);
  if (!own) return;
  if (column == 0) p.r[row] = r;
  float w[kUnit];
  load_unit(w, p.weight + column);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) y[c] = x[c] * r * w[c];
  store_unit(static_cast<T*>(p.norm) + at, y);
}

// dx = dsum + r (w dnorm - x r^2 mean(x w dnorm)),  dw = sum over rows of dnorm x r.  A block goes from row to row.
template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    backward_kernel(const __grid_constant__ AddNormCall p) {
  __shared__ float2 places[2][32];
  RowSums<L> sums{places};
  const int column = int(threadIdx.x % L) * kUnit;
  float w[kUnit] = {}, dw[kUnit] = {};
  if (column < p.n) load_unit(w, p.weight + column);
  for (int64_t first = int64_t(blockIdx.x) * rows_of_block(L); first < p.rows;
       first += int64_t(gridDim.x) * rows_of_block(L)) {
    const int64_t row = first + threadIdx.x / L, at = row * p.n + column;
    const bool own = row < p.rows && column < p.n;
    float x[kUnit] = {}, d[kUnit] = {}, out[kUnit] = {}, r = 0.f, dot = 0.f;
    if (own) {
      load_unit(x, p.sum + at);
      load_unit(d, static_cast<const T*>(p.dnorm) + at);
      if (p.dsum != nullptr) load_unit(out, p.dsum + at);
      r = p.r[row];
    }
#pragma unroll
    for (int c = 0; c < kUnit; ++c) {
      dw[c] += d[c] * x[c] * r;
      d[c] *= w[c];
      dot += d[c] * x[c];
    }
    const float back = sums(dot) * p.inverse * r * r * r;
    if (!own) continue;
#pragma unroll
    for (int c = 0; c < kUnit; ++c) out[c] += r * d[c] - back * x[c];
    store_unit(p.dx + at, out);
    if (p.dy != nullptr) store_unit(static_cast<T*>(p.dy) + at, out);
  }
  sum_rows<L>(dw, 1, p.n, p.dweight + int64_t(blockIdx.x) * p.n);
}

struct Start {
  const AddNormCall& p;
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

cudaError_t add_norm_forward(const AddNormCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, Start{p, false, stream});
}
cudaError_t add_norm_backward(const AddNormCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, Start{p, true, stream});
}

}  // namespace horner::cuda
