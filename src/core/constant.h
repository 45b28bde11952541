// Numbers that are the same in every call, on the device that reads them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace horner {

// A tensor of `values`. On a GPU it is copied there once and kept, since a copy from the host waits for the GPU, and a graph
// cannot be recorded while something waits.
at::Tensor constant(const std::vector<double>& values, const at::TensorOptions& options);

}  // namespace horner
