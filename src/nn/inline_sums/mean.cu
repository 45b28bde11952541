// The mean of all tokens so far, and gelu with a bias (inline_sums.h).
#include "nn/fused/functions.h"
#include "nn/inline_sums/rows.cuh"

namespace horner::cuda {
namespace {

template <class T, int L>
__global__ void __launch_bounds__(kThreads) mean_kernel(const __grid_constant__ RunningMean p) {
  __shared__ float totals[2][kWarps][L * kUnit];
  const InlineShape& s = p.shape;
  const Place<L> me(s);
  Before<L> before{totals};
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    float x[kEach][kUnit] = {}, sum[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (start + i < s.T) load_unit(x[i], static_cast<const T*>(p.x) + me.at(s, start + i));
#pragma unroll
    for (int i = 0; i < kEach; ++i) add(sum, x[i]);
    before(sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (start + i >= s.T) continue;
      add(sum, x[i]);
      float y[kUnit];
#pragma unroll
      for (int c = 0; c < kUnit; ++c) y[c] = sum[c] / float(start + i + 1);
      keep(p.mean + me.by_head(s, start + i) * s.K + me.column, packed(y));
    }
  }
}

// dx_t = sum_{s >= t} dmean_s / n_s
template <class T, int L>
__global__ void __launch_bounds__(kThreads)
    mean_backward_kernel(const __grid_constant__ RunningMean p) {
  __shared__ float totals[2][kWarps][L * kUnit];
  const InlineShape& s = p.shape;
  const Place<L> me(s);
  Before<L> before{totals};
  for (int64_t start = me.first; start - me.first < s.T; start += me.kTokens) {
    const int64_t last = s.T - 1 - start;
    uint4 d[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      d[i] = fetch(p.dmean + me.by_head(s, last - i) * s.K + me.column, last >= i);
    float sum[kUnit] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float x[kUnit];
      unpack(x, d[i]);
      add(sum, x, last >= i ? 1.f / float(last - i + 1) : 0.f);
    }
    before(sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (last < i) continue;
      float x[kUnit];
      unpack(x, d[i]);
      add(sum, x, 1.f / float(last - i + 1));
      store_unit(static_cast<T*>(p.dx) + me.at(s, last - i), sum);
    }
  }
}

__global__ void __launch_bounds__(kThreads) gelu_kernel(const __grid_constant__ BiasGelu p) {
  const InlineShape& s = p.shape;
  const int64_t of_head = s.B * s.T * s.K;
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (at >= of_head * s.H) return;
  float z[kUnit], b[kUnit], d[kUnit];
  load_unit(z, p.z + at);
  load_unit(b, p.b + at / of_head * s.K + at % s.K);
  if (p.dy != nullptr) load_unit(d, p.dy + at);
#pragma unroll
  for (int c = 0; c < kUnit; ++c) {
    const Gelu<float> y = gelu_erf(z[c] + b[c]);
    z[c] = p.dy != nullptr ? d[c] * y.slope : y.value;
  }
  store_unit(p.y + at, z);
}

template <class T>
struct StartMean {
  const RunningMean& p;
  cudaStream_t stream;
  template <int L>
  void run() const {
    if (p.dmean != nullptr)
      mean_backward_kernel<T, L><<<blocks(p.shape), kThreads, 0, stream>>>(p);
    else
      mean_kernel<T, L><<<blocks(p.shape), kThreads, 0, stream>>>(p);
  }
};

}  // namespace

cudaError_t running_mean(const RunningMean& p, cudaStream_t stream) {
  return p.bf16 ? for_head(p.shape, StartMean<T16>{p, stream})
                : for_head(p.shape, StartMean<float>{p, stream});
}
cudaError_t bias_gelu(const BiasGelu& p, cudaStream_t stream) {
  const int64_t each = int64_t(kThreads) * kUnit,
                count = p.shape.B * p.shape.T * p.shape.H * p.shape.K;
  gelu_kernel<<<unsigned((count + each - 1) / each), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
