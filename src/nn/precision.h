// In which precision a layer computes.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

inline at::Tensor wide(const at::Tensor& x) {  // fp32, or fp64 where it is
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

}  // namespace horner
