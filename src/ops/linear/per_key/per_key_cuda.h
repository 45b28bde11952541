// The chunked kernel of `linear` where the decay is per key: see per_key.cuh. Takes packed batches as they are.
#pragma once

#include "ops/op.h"

namespace horner {

Result per_key_forward(const Inputs&, const State&, const Options&, Saved*);
std::vector<at::Tensor> per_key_backward(
    const Inputs&, const State&, const Options&, const Saved&, const Result& dy
);

}  // namespace horner
