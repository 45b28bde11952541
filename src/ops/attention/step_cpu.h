// `attention`, one token on a CPU: every key and value of the cache is read once, by all query
// heads of its group.
//
//   m = max_s x_s        l = sum_s e^{x_s - m}        o = sum_s e^{x_s - m} v_s / l
//
// Threads take parts of 1,024 keys, and the parts are merged at the end. Parts are counted from a
// row's first token, so its bits depend neither on the other rows nor on the number of threads.
#pragma once

#include "ops/op.h"

namespace horner {

std::string attention_step_cpu_refuses(const Inputs&, const State&, const Options&);
Result attention_step_cpu(const Inputs&, const State&, const Options&);

}  // namespace horner
