// The chunked kernel of `linear` with a decay per key: see per_key.cuh. Takes packed batches whole.
#pragma once

#include "ops/op.h"

namespace horner {

Result per_key_forward(const Inputs&, const State&, const Options&, Saved*);
std::vector<at::Tensor> per_key_backward(
    const Inputs&, const State&, const Options&, const Saved&, const Result& dy
);

}  // namespace horner
