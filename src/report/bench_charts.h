// The pictures of `horner bench ops`.
#pragma once

#include "lab/bench/bench.h"

namespace horner {

// Per op, against T: the time of a token of a head, forward and backward, and the share of it that the floor is. A file
// of its own; empty where no op was timed at two lengths.
std::string bench_picture(const BenchReport&);

}  // namespace horner
