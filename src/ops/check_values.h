// Checks of numbers, for finding mistakes: they read every input and wait for a GPU, so they are off unless asked for.
//
//   input          rule                        without it
//   g              real part at most 0         the state grows without bound
//   beta           in [0, 2]                   delta's step leaves the contraction
//   k of delta     norm at most 1              likewise
//   denominator    above 0 with norm = sum     o is cut off at eps: an arbitrary number
//
// On in a debug build, with HORNER_CHECK=1, and where set_checks_values turns them on.
#pragma once

#include "ops/op.h"

namespace horner {

bool checks_values();                            // on this thread, now
void set_checks_values(std::optional<bool> on);  // on this thread; none: as HORNER_CHECK says

// UsageError that names the op, the input and the place.
void check_values(const Op&, const Inputs&, const State&, const Options&);

}  // namespace horner
