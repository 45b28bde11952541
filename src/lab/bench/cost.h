// What an op must move and compute at least (bf16 or fp32 operands, states on chip): the machine's floor.
// Per token and head, K and V the dims of keys and values, C the chunk (`power`: 128, of wide keys 16 K), F its features:
//
//   op                   bytes fwd       bytes fwd+bwd        FLOP fwd              FLOP bwd
//   linear               q k v g + o     each sweep reads     2C(K+V) + 4KV         6C(K+V) + 10KV
//   power chunked        the same        its inputs again     C(K+V) + 4FV          2.5C(K+V) + 10FV
//   power parallel       the same                             T(K+V)                2.5T(K+V)
//   attention            the same                             T(K+V)                2.5T(K+V)
//   delta                the same                             4C(K+V) + 6KV + C^2   2.7 fwd
//   scan                 g v + h         + g, h, dh, dg, dv   -                     -
// One token reads its state and writes it; folded late, it reads the state and the tokens since (half of W, on the
// average), and writes each W-th time.
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
