// Rotates pairs (j, j + P) of the last dimension by an angle, in one pass over memory.
//
//   y_j = x_j c_j - x_{j+P} s_j        y_{j+P} = x_j s_j + x_{j+P} c_j        c = cos th, s = sin th
//
// The gradient of x is the gradient of y rotated back, so only c and s are kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace horner {

// Each x (B,T,H,2P) in fp32, or on a GPU in bf16, with its own H; c and s (B|1,T,A,P) in fp32, without gradients. A divides
// every H: heads i H/A .. (i+1) H/A - 1 have angle i. One kernel reads all (at most two) where they lie.
std::vector<at::Tensor> rotate_pairs(
    const std::vector<at::Tensor>& x, const at::Tensor& c, const at::Tensor& s
);
bool can_rotate_pairs(const at::Tensor& x);

// What libhorner_cuda.so provides.
struct RotateKernels {
  // Each y, contiguous, from x; rotated back if `back` is set.
  void (*rotate
  )(const std::vector<at::Tensor>& x,
    const at::Tensor& c,
    const at::Tensor& s,
    bool back,
    const std::vector<at::Tensor>& y) = nullptr;
  bool (*captured)() = nullptr;  // whether a CUDA graph records the current stream
};
RotateKernels& rotate_kernels();
RotateKernels cuda_rotate_kernels();  // in libhorner_cuda.so

}  // namespace horner
