// A block whose inner activations are not kept: backward computes them again from its input.
#pragma once

#include "model/model.h"

namespace horner {

// Block::forward without a state. The same dropout is drawn again: the generators are put back.
at::Tensor recompute(Block& block, const at::Tensor& x, const Context& context);  // (B,T,D)

}  // namespace horner
