// The rule of correctness: a row whose error is larger than allowed gets no time.
#pragma once

#include "lab/bench/subjects.h"

namespace horner {

// Fills error, allowed, worst and failure of the row.
void check_errors(const BenchJob&, at::Device, int64_t seed, BenchRow&);

}  // namespace horner
