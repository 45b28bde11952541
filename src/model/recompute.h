// A block whose inner activations are not kept: the backward computes them again from the block's input.
#pragma once

#include "model/model.h"

namespace horner {

// Block::forward without a state. The backward restores the generators, so it draws the same dropout again.
at::Tensor recompute(Block& block, const at::Tensor& x, const Context& context);  // (B,T,D)

}  // namespace horner
