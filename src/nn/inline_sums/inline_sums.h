// What stands around the op of InLine attention (mixers/inline_attention.h), for training on a GPU in bf16. One head:
//
//   weights   k'_t = k_t - k_1,   v'_t = v_t - v_1,   qh_t = q_t / (t sqrt K),   c_t = (1 - qh_t . sum_{s<=t} k'_s) / t
//   output    o_t = read_t + c_t sum_{s<=t} v'_s + v_1 + sum_j (b_j + rk_tj) v_{t-j},      read_t = sum_{s<=t} (qh_t . k'_s) v'_s
//   taps      rk_t = gelu(x-_t W_1 + b_1) W_2,   x-_t = the mean of x_1 .. x_t
//
// c is computed from qh and k' as they were rounded, so that the weights of `read` and c sum to 1 as the op computes them. k_1
// and v_1 have no gradient: o does not depend on them. In plain operations the same takes 200 passes over memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

// q, k, v (B,T,H,K) in bf16 with K = 16, 32, 64 or 128; taps of the residual.
bool inline_fuses(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t taps);

struct InlineWeighted {
  at::Tensor qh, k, v, c;  // (B,T,H,K) three times in bf16, (B,T,H) in fp32
};
InlineWeighted inline_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

struct InlineTaps {
  at::Tensor W1, b1, W2;  // (H,K,K), (H,K), (H,K,taps K)
};
// x (B,T,H K) -> (H,B,T,taps K) in bf16
at::Tensor inline_taps(const at::Tensor& x, const InlineTaps&);

// v: as it was given to inline_weights; rk and bias (H,taps K) are undefined without taps.
at::Tensor inline_output(
    const at::Tensor& read,
    const at::Tensor& v,
    const InlineWeighted&,
    const at::Tensor& rk,
    const at::Tensor& bias
);

// What libhorner_cuda.so provides.
struct InlineOutputGrads {
  at::Tensor dc, dv, drk, dbias;  // dbias (B,H,taps K), to be summed over B
};
struct InlineKernels {
  InlineWeighted (*weights
  )(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) = nullptr;
  // w: dqh, dk' and dc; gives dq and dk.
  std::pair<at::Tensor, at::Tensor> (*weights_backward
  )(const at::Tensor& qh, const at::Tensor& k, const InlineWeighted& d) = nullptr;
  at::Tensor (*output
  )(const at::Tensor& read,
    const at::Tensor& v,
    const at::Tensor& c,
    const at::Tensor& rk,
    const at::Tensor& bias) = nullptr;
  InlineOutputGrads (*output_backward
  )(const at::Tensor& v,
    const at::Tensor& c,
    const at::Tensor& rk,
    const at::Tensor& bias,
    const at::Tensor& dy) = nullptr;
  at::Tensor (*mean)(const at::Tensor& x) = nullptr;  // (B,T,H,K) -> (H,B,T,K) in bf16
  at::Tensor (*mean_backward)(const at::Tensor& dmean, at::ScalarType) = nullptr;
  // gelu(z + b), or dz where dy is defined
  at::Tensor (*gelu)(const at::Tensor& z, const at::Tensor& b, const at::Tensor& dy) = nullptr;
};
InlineKernels& inline_kernels();
InlineKernels cuda_inline_kernels();  // in libhorner_cuda.so

}  // namespace horner
