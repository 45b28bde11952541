// The contract that every form of every op keeps, as measurements. The tests assert it, `horner verify` prints it.
//
// A form that computes in fp64 agrees with the definition to 1e-10. Any other form (a kernel in bf16) errs at most twice as
// much as the plain chunked form in the same precision. Both are measured against the definition in fp64 on the same inputs.
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
  const Form* form = nullptr;  // null: the definition
  bool keeps_state = true;     // false: the form knows no state

  std::string_view form_name() const;
  at::ScalarType type() const;  // fp64 if the form takes it, else its first type
  bool exact() const;           // it computes in fp64
};

struct Measure {
  double error = 0;     // relative, or a count of violations
  double bound = 0;     // holds when error <= bound
  bool applies = true;  // false: the measurement showed that there is no such property
  bool holds() const { return error <= bound; }  // false for NaN
};

struct Property {
  std::string_view name;
  std::string_view meaning;
  bool (*applies)(const Case&);  // decided without running anything; null: always
  Measure (*measure)(const Case&);
};

// THE list of properties.
const std::vector<Property>& contract();

// The property of the case. Where a form is not exact, its bound comes from one draw of the plain form; if the error is
// above it, the largest of four draws counts.
Measure measured(const Property&, const Case&);

// The cases of one form on a device: all variants at `dims`; for a kernel also at shapes that kernels are made for. Cases
// that the form refuses are left out. A form without a state or a log-normaliser is measured without it.
std::vector<Case> cases_of(const Op&, const Form&, const Dims&, at::Device, uint64_t seed);

// The largest |a - b| divided by the largest |b|; infinite if a is not finite.
double relative_error(const at::Tensor& a, const at::Tensor& b);
Inputs sample_inputs(const Case&, at::ScalarType);  // of the case's seed, on its device

}  // namespace horner
