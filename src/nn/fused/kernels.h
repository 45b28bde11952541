// What libhorner_cuda.so provides for the fused parts (fused.h). Gradients of weights come as (parts,..) in fp32, to be
// summed over the first dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/fused/fused.h"

namespace horner {

struct NormInput {
  at::Tensor x;       // (..,n), contiguous
  at::Tensor weight;  // (n), (H,n) or undefined; fp32
  at::Tensor gate;    // as x, or undefined
  at::Tensor u, D;    // of skip_norm: as x, (n) fp32; or undefined
  double eps = 0;
  bool layer = false;
  Gate act = Gate::none;
};
struct NormGrads {
  at::Tensor dx, dgate, du, dweight, dD;
};
struct AddNormGrads {
  at::Tensor dx, dy, dweight;
};

struct FusedKernels {
  bool (*norm_takes)(int64_t n, int64_t heads) = nullptr;
  // Writes sum if y is defined; r (rows) = 1 / sqrt(mean sum^2 + eps).
  void (*add_norm
  )(const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& weight,
    double eps,
    at::Tensor& sum,
    at::Tensor& norm,
    at::Tensor& r) = nullptr;
  AddNormGrads (*add_norm_backward
  )(const at::Tensor& sum,
    const at::Tensor& r,
    const at::Tensor& weight,
    const at::Tensor& dnorm,
    const at::Tensor& dsum,
    bool wants_dy) = nullptr;
  at::Tensor (*gated_norm)(const NormInput&) = nullptr;
  NormGrads (*gated_norm_backward)(const NormInput&, const at::Tensor& dy) = nullptr;
  at::Tensor (*skip_norm)(const NormInput&) = nullptr;
  NormGrads (*skip_norm_backward)(const NormInput&, const at::Tensor& dy) = nullptr;
  at::Tensor (*swiglu)(const at::Tensor& a, const at::Tensor& b) = nullptr;
  std::pair<at::Tensor, at::Tensor> (*swiglu_backward
  )(const at::Tensor& a, const at::Tensor& b, const at::Tensor& dy) = nullptr;
};
FusedKernels& fused_kernels();
FusedKernels cuda_fused_kernels();  // in libhorner_cuda.so

// The same in plain operations: the definitions of the forwards, and the formulas of the backwards.
FusedKernels plain_fused();

}  // namespace horner
