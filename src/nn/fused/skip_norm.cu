// t = (x + D u) SiLU(z),  y = t r w,  r = 1 / sqrt(mean t^2 + eps)
//
// L threads have a row with 8 numbers each, as in add_norm.cu. The backward computes t and r again.
#include "cuda/units.cuh"
#include "nn/fused/fused.cuh"
#include "nn/fused/rows.cuh"

namespace horner::cuda {
namespace {

template <class T>
struct Unit {
  float x[kUnit] = {}, u[kUnit] = {}, z[kUnit] = {};  // x becomes x + D u
  __device__ void load(const GatedNormCall& p, int64_t row, int column, const float (&D)[kUnit]) {
    const int64_t at = row * p.n + column;
    load_unit(x, static_cast<const T*>(p.x) + at);
    load_unit(z, static_cast<const T*>(p.gate) + row * p.gate_row + column);
    if (p.u == nullptr) return;
    load_unit(u, static_cast<const T*>(p.u) + at);
#pragma unroll
    for (int c = 0; c < kUnit; ++c) x[c] += D[c] * u[c];
  }
};

template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    forward_kernel(const __grid_constant__ GatedNormCall p) {
  __shared__ float2 places[2][32];
  RowSums<L> sums{places};
  const int column = int(threadIdx.x % L) * kUnit;
  const int64_t row = int64_t(blockIdx.x) * rows_of_block(L) + threadIdx.x / L;
  const int64_t at = row * p.n + column;
  const bool own = row < p.rows && column < p.n;
  Unit<T> in;
  float w[kUnit] = {}, D[kUnit] = {}, square = 0.f;
  if (own) {
    if (p.u != nullptr) load_unit(D, p.D + column);
    load_unit(w, p.weight + column);
    in.load(p, row, column, D);
  }
#pragma unroll
  for (int c = 0; c < kUnit; ++c) {
    in.x[c] *= in.z[c] * sigmoid(in.z[c]);
    square += in.x[c] * in.x[c];
  }
  const float r = rsqrtf(sums(square) * p.inverse + p.eps);
  if (!own) return;
#pragma unroll
  for (int c = 0; c < kUnit; ++c) in.x[c] *= r * w[c];
  store_unit(static_cast<T*>(p.y) + at, in.x);
}

// dt = r (w dy - t r^2 mean(t w dy)):  dx = dt SiLU(z),  du = D dx,  dz = dt (x + D u) SiLU'(z)
// dw = sum over rows of dy t r         dD = sum over rows of dx u, for each column
template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    backward_kernel(const __grid_constant__ GatedNormCall p) {
  __shared__ float2 places[2][32];
  RowSums<L> sums{places};
  const int column = int(threadIdx.x % L) * kUnit;
  float w[kUnit] = {}, D[kUnit] = {}, dw[kUnit] = {}, dD[kUnit] = {};
  if (column < p.n) {
    load_unit(w, p.weight + column);
    if (p.u != nullptr) load_unit(D, p.D + column);
  }
  for (int64_t first = int64_t(blockIdx.x) * rows_of_block(L); first < p.rows;
       first += int64_t(gridDim.x) * rows_of_block(L)) {
    const int64_t row = first + threadIdx.x / L, at = row * p.n + column;
    const bool own = row < p.rows && column < p.n;
    Unit<T> in;
    float d[kUnit] = {};
    float2 both = make_float2(0.f, 0.f);  // t^2, t w dy
    if (own) {
      in.load(p, row, column, D);
      load_unit(d, static_cast<const T*>(p.dy) + at);
    }
#pragma unroll
    for (int c = 0; c < kUnit; ++c) {
      const float t = in.x[c] * in.z[c] * sigmoid(in.z[c]);
      both.x += t * t;
      both.y += t * w[c] * d[c];
    }
    both = sums(both);
    if (!own) continue;
    const float r = rsqrtf(both.x * p.inverse + p.eps), back = both.y * p.inverse * r * r * r;
#pragma unroll
    for (int c = 0; c < kUnit; ++c) {
      const float s = sigmoid(in.z[c]), silu = in.z[c] * s, t = in.x[c] * silu;
      const float dt = r * w[c] * d[c] - back * t;
      dw[c] += d[c] * t * r;
      d[c] = dt * silu;
      in.z[c] = dt * in.x[c] * s * (1.f + in.z[c] * (1.f - s));
      dD[c] += d[c] * in.u[c];
      in.u[c] = D[c] * d[c];
    }
    store_unit(static_cast<T*>(p.dx) + at, d);
    store_unit(static_cast<T*>(p.dgate) + at, in.z);
    if (p.u != nullptr) store_unit(static_cast<T*>(p.du) + at, in.u);
  }
  sum_rows<L>(dw, 1, p.n, p.dweight + int64_t(blockIdx.x) * p.n);
  if (p.u != nullptr) sum_rows<L>(dD, 1, p.n, p.dD + int64_t(blockIdx.x) * p.n);
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

cudaError_t skip_norm_forward(const GatedNormCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, Start{p, false, stream});
}
cudaError_t skip_norm_backward(const GatedNormCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.n, Start{p, true, stream});
}

}  // namespace horner::cuda
