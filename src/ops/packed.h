// How a packed batch runs where no kernel takes it as it is: one sequence after the other, or all at once, padded.
#pragma once

#include <functional>

#include "ops/op.h"

namespace horner {

// cu_seqlens as numbers; throws unless they rise from 0 to T.
std::vector<int64_t> sequence_starts(const Op&, const Inputs&);

// The first of the longest ones.
struct Span {
  int64_t start, length;
};
Span longest_sequence(const std::vector<int64_t>& starts);

using RunForm = std::function<Result(const Inputs&, const State&, const Options&)>;

// Each sequence on its own: its state starts afresh, or from its row of the state.
Result run_each(const Op&, const RunForm&, const Inputs&, const State&, const Options&);

// All sequences as one batch, with zeros after the end of each. Needs op.pads.
Result run_padded(const Op&, const RunForm&, const Inputs&, const State&, const Options&);

// Padded on a GPU, which a batch fills and single sequences do not, where that is right and not too wasteful.
Result run_packed(const Op&, const RunForm&, const Inputs&, const State&, const Options&);

}  // namespace horner
