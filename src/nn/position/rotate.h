// Rotates pairs (j, j + P) of the last dimension by an angle, in one pass over memory.
//
//   y_j = x_j c_j - x_{j+P} s_j        y_{j+P} = x_j s_j + x_{j+P} c_j        c = cos th, s = sin th
//
// The gradient of x is the gradient of y rotated back, so only c and s are kept.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

// x (B,T,H,2P) in fp32, or on a GPU in bf16; c and s (B|1,T,H|1,P) in fp32, without gradients.
at::Tensor rotate_pairs(const at::Tensor& x, const at::Tensor& c, const at::Tensor& s);
bool can_rotate_pairs(const at::Tensor& x);

// What libhorner_cuda.so provides: y from x, rotated back if `back` is set.
using RotateKernel = void (*)(
    const at::Tensor& x, const at::Tensor& c, const at::Tensor& s, bool back, at::Tensor& y
);
RotateKernel& rotate_kernel();
RotateKernel cuda_rotate_kernel();  // in libhorner_cuda.so

}  // namespace horner
