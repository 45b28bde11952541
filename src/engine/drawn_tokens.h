// Random tokens of many streams, where their logits lie: what TokenSampler draws from all tokens (model/sampling.h), for rows.
//
//   w_i = e^{(x_i - max x) / temperature}      the first i with sum_{j<=i} w_j > u sum_j w_j and w_i > 0
//
// All sums are fp64. A GPU adds in another order than a CPU, so a token may differ where u lies within 1e-12 of a limit.
#pragma once

#include "engine/runner.h"

namespace horner {

// (n) for logits (n,V) and draws (n,2): temperature, u in fp64. A row's token depends on the row alone, for the same n.
at::Tensor drawn_tokens(const at::Tensor& logits, const at::Tensor& draws);
int32_t drawn_token(const at::Tensor& logits, const Draw& draw);  // of one row (1,V)

}  // namespace horner
