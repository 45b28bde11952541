// The contract that every op keeps, as measurements. The tests assert it, `horner verify` prints it.
#pragma once

#include "ops/op.h"

namespace horner {

// What a property is measured on.
struct Case {
  const Op& op;
  Variant variant;
  Dims dims;
  at::Device device = at::kCPU;
  uint64_t seed = 0;
};

struct Measure {
  double error = 0;     // relative to the largest value, or a count of violations
  double bound = 0;     // holds when error <= bound
  bool applies = true;  // false: this variant has no such property
  bool holds() const { return error <= bound; }  // false for NaN
};

struct Property {
  std::string_view name;
  std::string_view meaning;
  Measure (*measure)(const Case&);
};

// THE list of properties.
const std::vector<Property>& contract();

// The largest |a - b| over the largest |b|; infinite where a is not finite.
double relative_error(const at::Tensor& a, const at::Tensor& b);
Inputs sample_inputs(const Case&, at::ScalarType);  // of the case's seed, on its device

}  // namespace horner
