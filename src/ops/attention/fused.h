// `attention` by torch's fused functions, which keep no T x T matrix.
#pragma once

#include "ops/op.h"

namespace horner {

// Whether one call of scaled_dot_product_attention, without a mask of our own, is enough: no window
// and no state.
bool attention_is_plain(const State&, const Options&);
Result attention_sdpa(const Inputs&, const State&, const Options&);

// Why the fused chunked form (blocks of queries, each with a mask over its visible keys) cannot run;
// empty: it can.
std::string attention_blocks_refuse(const Inputs&, const State&, const Options&);
Result attention_by_blocks(const Inputs&, const State&, const Options&);

}  // namespace horner
