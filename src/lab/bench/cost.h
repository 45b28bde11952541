// The least that an op must move and compute (bf16 or fp32 operands, states on chip): the machine's floor. Bytes: each input
// once, and o; with backward, each sweep reads its inputs again. FLOPs: op.flops. One token reads and writes its state. Folded
// late, it reads the state and the waiting tokens (half of W on average) and writes the state at each W-th token.
#pragma once

#include "ops/op.h"

namespace horner {

struct BenchCost {
  double bytes = 0, flops = 0;
};
struct BenchCosts {
  BenchCost forward, both;
};
BenchCosts costs(
    const Op&, const Inputs&, const State&, const Options&, std::string_view form, int fold = 1
);

}  // namespace horner
