// y = x W^T + b in fp32 on a CPU by oneDNN, which torch keeps for its compiler; at::linear asks MKL.
//
//   dx = dy W by oneDNN        dW = dy^T x by MKL, the faster there
//
// For 8192 rows and 64 .. 704 columns on two cores of an EPYC the first two take 0.6 to 0.95 of MKL's
// time, which is a tenth of a training step.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

// Whether it pays: fp32 on a CPU, in training, enough rows, no autocast, and oneDNN is there.
bool has_onednn_linear(const at::Tensor& x, const at::Tensor& weight);
at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace horner
