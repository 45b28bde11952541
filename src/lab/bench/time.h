// How long the calls of `horner bench ops` take, and the machine's limit.
#pragma once

#include "lab/bench/subjects.h"

namespace horner {

void measure_ceilings(BenchReport&, at::Device);

// A row of the op, after its error has been checked.
BenchRow time_job(const BenchJob&, const BenchReport&, at::Device);

// The bound for one token: torch copies its states, as many in a run as time_job steps.
BenchRow time_copy(const BenchJob&, const BenchReport&, at::Device);

// Softmax attention by torch, with one backend at a time: cuDNN or flash.
// Torch's attention of one token over the same cache.
BenchRow time_cached_sdpa(const BenchJob&, const BenchReport&, at::Device);
BenchRow time_sdpa(std::string backend, const BenchShape&, const BenchReport&);

}  // namespace horner
