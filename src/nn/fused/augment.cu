// L threads have a row of one head, with 8 numbers of q and k and 8 numbers of v and o each. gates.h has the equations.
#include "cuda/units.cuh"
#include "nn/fused/fused.cuh"
#include "nn/fused/gates.cuh"
#include "nn/fused/rows.cuh"

namespace horner::cuda {
namespace {

// A thread's numbers of q, k and a, and its part of w.
template <class T>
struct Keys {
  float q[kUnit] = {}, k[kUnit] = {};
  __device__ float load(const AugmentCall& p, int64_t at, const float (&a)[kUnit]) {
    load_unit(q, static_cast<const T*>(p.q) + at);
    load_unit(k, static_cast<const T*>(p.k) + at);
    float w = 0.f;
#pragma unroll
    for (int c = 0; c < kUnit; ++c) w += q[c] * k[c] * a[c];
    return w;
  }
};

template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    forward_kernel(const __grid_constant__ AugmentCall p) {
  __shared__ float2 places[2][32];
  RowSums<L> sums{places};
  const int column = int(threadIdx.x % L) * kUnit;
  const int64_t row = int64_t(blockIdx.x) * rows_of_block(L) + threadIdx.x / L;
  Keys<T> keys;
  float a[kUnit] = {}, w = 0.f;
  if (row < p.rows && column < p.K) {
    load_unit(a, p.a + row % p.heads * p.K + column);
    w = keys.load(p, row * p.K + column, a);
  }
  w = sums(w);
  if (row >= p.rows || column >= p.V) return;
  float v[kUnit], o[kUnit];
  load_unit(v, static_cast<const T*>(p.v) + row * p.V + column);
  load_unit(o, static_cast<const T*>(p.o) + row * p.V + column);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) o[c] += sigmoid(w * v[c]) + p.offset;
  store_unit(static_cast<T*>(p.y) + row * p.V + column, o);
}

template <class T, int L>
__global__ void __launch_bounds__(row_threads(L))
    backward_kernel(const __grid_constant__ AugmentCall p) {
  __shared__ float2 places[2][32];
  RowSums<L> sums{places};
  const int column = int(threadIdx.x % L) * kUnit;
  float a[kUnit] = {}, da[kUnit] = {};
  if (column < p.K)  // a thread's rows have one head
    load_unit(a, p.a + int(threadIdx.x / L) % p.heads * p.K + column);
  for (int64_t first = int64_t(blockIdx.x) * rows_of_block(L); first < p.rows;
       first += int64_t(gridDim.x) * rows_of_block(L)) {
    const int64_t row = first + threadIdx.x / L;
    const bool keys_own = row < p.rows && column < p.K, own = row < p.rows && column < p.V;
    Keys<T> keys;
    float v[kUnit] = {}, d[kUnit] = {};
    float w = keys_own ? keys.load(p, row * p.K + column, a) : 0.f;
    if (own) {
      load_unit(v, static_cast<const T*>(p.v) + row * p.V + column);
      load_unit(d, static_cast<const T*>(p.dy) + row * p.V + column);
    }
    w = sums(w);
    float dw = 0.f;
#pragma unroll
    for (int c = 0; c < kUnit; ++c) {
      const float s = sigmoid(w * v[c]);
      d[c] *= s * (1.f - s);
      dw += d[c] * v[c];
      d[c] *= w;
    }
    dw = sums(dw);
    if (own) store_unit(static_cast<T*>(p.dv) + row * p.V + column, d);
    if (!keys_own) continue;
#pragma unroll
    for (int c = 0; c < kUnit; ++c) {
      const float q = keys.q[c], k = keys.k[c];
      da[c] += dw * q * k;
      keys.q[c] = dw * k * a[c];
      keys.k[c] = dw * q * a[c];
    }
    store_unit(static_cast<T*>(p.dq) + row * p.K + column, keys.q);
    store_unit(static_cast<T*>(p.dk) + row * p.K + column, keys.k);
  }
  sum_rows<L>(da, p.heads, p.K, p.da + int64_t(blockIdx.x) * p.heads * p.K);
}

struct Start {
  const AugmentCall& p;
  bool back;
  cudaStream_t stream;
  template <class T, int L>
  void run() const {
    const auto blocks = unsigned((p.rows + rows_of_block(L) - 1) / rows_of_block(L));
    if (back)
      backward_kernel<T, L>
          <<<row_blocks(p.rows, p.K > p.V ? p.K : p.V), row_threads(L), 0, stream>>>(p);
    else
      forward_kernel<T, L><<<blocks, row_threads(L), 0, stream>>>(p);
  }
};

}  // namespace

bool augment_takes(int K, int V, int heads) {
  return K % kUnit == 0 && V % kUnit == 0 && gated_norm_takes(K > V ? K : V, heads);
}
cudaError_t augment_forward(const AugmentCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.K > p.V ? p.K : p.V, Start{p, false, stream});
}
cudaError_t augment_backward(const AugmentCall& p, cudaStream_t stream) {
  return for_rows(p.bf16, p.K > p.V ? p.K : p.V, Start{p, true, stream});
}

}  // namespace horner::cuda
