// One call as a program would make it: inputs that take gradients, and the gradient of o. A call of one token starts from a
// state and has no gradient.
#pragma once

#include "lab/bench/subjects.h"
#include "ops/lazy/lazy.h"

namespace horner {

at::ScalarType low_type(at::Device);  // what inputs are rounded to

Inputs job_inputs(const BenchJob&, const Dims&, at::Device, int64_t seed, at::ScalarType);

struct BenchCall {
  const Op& op;
  Inputs in;
  State state = {};
  mutable std::optional<Lazy> lazy = {};  // carried from call to call
  Options options;
  std::vector<std::string> names;
  std::vector<at::Tensor> leaves;
  at::Tensor grad;  // of o

  BenchCall(const BenchJob&, const Inputs&, at::ScalarType);
  Result forward() const;
  Result until_fold() const;  // folded late: `fold` equal tokens, up to the fold; else forward
  Result at_once() const;     // the same by options.form
  std::vector<at::Tensor> both() const;
};

}  // namespace horner
