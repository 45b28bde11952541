// Parameters of the kernels of InLine attention's sums (inline_sums.h has the equations). All tensors are contiguous.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

constexpr int kInlineTaps = 4;  // at most

struct InlineShape {
  int64_t B = 0, T = 0;
  int H = 0, K = 0, taps = 0;
};

// Forward: q, k and v become qh, ks and vs, with c. Backward: dqh and dks become dq and dk.
struct InlineWeights {
  InlineShape shape;
  const __nv_bfloat16 *q = nullptr, *k = nullptr, *v = nullptr;  // (B,T,H,K)
  __nv_bfloat16 *qh = nullptr, *ks = nullptr, *vs = nullptr;
  float* c = nullptr;         // (B,T,H)
  const float* dc = nullptr;  // not null: backward
  const __nv_bfloat16 *dqh = nullptr, *dks = nullptr;
  __nv_bfloat16 *dq = nullptr, *dk = nullptr;
};
cudaError_t inline_weights(const InlineWeights&, cudaStream_t);

// o = read + c sum v' + v_1 + local residual.
struct InlineOutput {
  InlineShape shape;
  const __nv_bfloat16 *read = nullptr, *v = nullptr;  // (B,T,H,K)
  const __nv_bfloat16* rk = nullptr;                  // (H,B,T,taps,K)
  const float *c = nullptr, *bias = nullptr;          // (B,T,H), (H,taps,K)
  __nv_bfloat16* o = nullptr;
  const __nv_bfloat16* dy = nullptr;
  float *dc = nullptr, *dbias = nullptr;  // dbias: (B,H,taps,K), to be summed over B
  __nv_bfloat16 *dv = nullptr, *drk = nullptr;
};
cudaError_t inline_output(const InlineOutput&, cudaStream_t);

// The mean of all tokens so far: x (B,T,H,K) -> mean (H,B,T,K), or the gradient of x.
struct RunningMean {
  InlineShape shape;
  bool bf16 = false;  // x and dx; otherwise fp32
  const void* x = nullptr;
  __nv_bfloat16* mean = nullptr;
  const __nv_bfloat16* dmean = nullptr;
  void* dx = nullptr;
};
cudaError_t running_mean(const RunningMean&, cudaStream_t);

// y = gelu(z + b), z (H,B,T,K), b (H,K); with dy: y is dz.
struct BiasGelu {
  InlineShape shape;
  const __nv_bfloat16 *z = nullptr, *dy = nullptr;
  const float* b = nullptr;
  __nv_bfloat16* y = nullptr;
};
cudaError_t bias_gelu(const BiasGelu&, cudaStream_t);

}  // namespace horner::cuda
