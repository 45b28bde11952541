// What the tests of the kernels share: the numbers that are compared, and the rule for their error.
#pragma once

#include <gtest/gtest.h>

#include "ops/op.h"

namespace horner {

struct Problem {
  Inputs in;
  at::Tensor S0, w, wS;  // initial state; the loss is <o, w> + <S_T, wS>
};

// o, the final state and all gradients.
struct Values {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

struct Errors {
  double rms, max;  // relative to the exact value's
};
inline Errors errors(const at::Tensor& a, const at::Tensor& exact) {
  const at::Tensor d = a.to(at::kDouble) - exact;
  const double norm = exact.norm().item<double>(), top = exact.abs().max().item<double>();
  return {
      d.norm().item<double>() / std::max(norm, 1e-300),
      d.abs().max().item<double>() / std::max(top, 1e-300)};
}

// The largest error is that of one element, and varies from draw to draw: of two versions with the same roundings, one
// exceeds twice the other in 1 to 3 of 100 draws (power of order 2, T = 127, dq and dk, both emulated in fp32). Against
// the largest of eight draws, in none of 20,000.
template <class F>
double largest_of_draws(F&& largest_error) {
  double largest = 0;
  for (uint64_t seed = 3; seed < 11; ++seed) largest = std::max(largest, largest_error(seed));
  return largest;
}

// A kernel errs at most twice as much as the plain version in the same precision.
inline void expect_at_most_twice(const std::string& name, const Errors& got, const Errors& plain) {
  EXPECT_TRUE(got.rms <= 2 * plain.rms + 1e-5 && got.max <= 2 * plain.max + 1e-5) << fmt::format(
      "{}: rms {:.2e} (plain {:.2e}), max {:.2e} (plain {:.2e})",
      name,
      got.rms,
      plain.rms,
      got.max,
      plain.max
  );
}

}  // namespace horner
