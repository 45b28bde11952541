// How far a tensor is from its exact value, for the rule that bounds the error of kernels.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace horner {

struct Errors {
  double rms, max;  // relative to rms and max of the exact value; infinite for NaN
};

inline Errors errors(const at::Tensor& x, const at::Tensor& exact) {
  const at::Tensor d = x.to(at::kDouble) - exact;
  const auto ratio = [](const at::Tensor& a, const at::Tensor& b) {
    const double error = a.item<double>() / std::max(b.item<double>(), 1e-300);
    return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  };
  return {ratio(d.norm(), exact.norm()), ratio(d.abs().max(), exact.abs().max())};
}

}  // namespace horner
