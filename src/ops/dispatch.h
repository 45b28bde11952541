// How layers call an op: directly, or through torch's dispatcher if a tracer or a transform stands for a tensor.
#pragma once

#include "ops/op.h"

namespace horner {

// Whether the numbers of all tensors can be read (core/memory.h).
bool have_memory(const Op&, const Inputs&, const State&);
// run(), or the same through the dispatcher if not all tensors have memory.
Result dispatch(const Op&, const Inputs&, const State&, const Options&);

}  // namespace horner
