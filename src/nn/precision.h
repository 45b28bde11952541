// In which precision a layer computes.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

inline at::Tensor wide(const at::Tensor& x) {  // fp32, or fp64 where it is
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// e^x with a gradient everywhere: from x = 60 on it stays e^60 = 1e26. Beyond e^88 fp32 is infinite, and what decays by an
// infinite rate or is divided by it has the gradient 0 times infinity.
inline at::Tensor bounded_exp(const at::Tensor& x) { return x.clamp_max(60.0).exp(); }

}  // namespace horner
