// The functions of functions.h on tensors: one kernel on a GPU, where plain operations would pass over memory 10 to 20 times.
// Rows are all dimensions but the last. Inputs may be parts of wider rows (halves of a projection).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nn/fused/functions.h"

namespace horner {

// Whether the kernel takes these tensors: x and c as functions.h names them.
bool pointwise_fuses(
    Pointwise f, const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& c
);

// x: (..,n) each; c: (n) in fp32 each; row: (..) in fp32, or undefined where the function has no numbers of rows. Results
// are fp32 where the function says so, else in the type of the last x. One node of autograd, which keeps its inputs.
std::vector<at::Tensor> pointwise(
    Pointwise f,
    const std::vector<at::Tensor>& x,
    const std::vector<at::Tensor>& c = {},
    const at::Tensor& row = {}
);

struct PointwiseTensors {
  std::vector<at::Tensor> x, c, y, dx,
      dc;  // y: dy where a gradient is wanted; dc: (parts,n), to be summed
  at::Tensor row;
};
using PointwiseKernel = void (*)(Pointwise f, const PointwiseTensors&, bool backward);
PointwiseKernel& pointwise_kernel();
PointwiseKernel cuda_pointwise_kernel();           // in libhorner_cuda.so
int64_t pointwise_parts(int64_t rows, int64_t n);  // of dc

}  // namespace horner
