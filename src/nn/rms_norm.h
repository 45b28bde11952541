// y = x r w over the last dimension, r = 1 / sqrt(mean x^2 + eps), in one pass over memory.
//
//   dx = r (w dy - x r^2 mean(x w dy))        dw = sum over rows of dy x r
//
// fp32. On a GPU torch has the kernel; on a CPU it takes five passes and keeps four tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

at::Tensor rms_norm(
    const at::Tensor& x, const at::Tensor& weight, double eps
);  // weight or undefined

}  // namespace horner
