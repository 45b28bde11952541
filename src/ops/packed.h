// How a packed batch runs if the form does not take it whole: one sequence after the other, or all at once, padded.
#pragma once

#include <functional>

#include "ops/op.h"

namespace horner {

// cu_seqlens as numbers; throws unless they rise from 0 to T.
std::vector<int64_t> sequence_starts(const Op&, const Inputs&);

// The first of the longest sequences.
struct Span {
  int64_t start, length;
};
Span longest_sequence(const std::vector<int64_t>& starts);

using RunForm = std::function<Result(const Inputs&, const State&, const Options&)>;

// Runs each sequence alone, from its row of the state or from nothing.
Result run_each(const Op&, const RunForm&, const Inputs&, const State&, const Options&);

// Runs all sequences as one batch, with zeros after the end of each. Needs op.pads.
Result run_padded(const Op&, const RunForm&, const Inputs&, const State&, const Options&);

// Padded on a GPU, if op.pads allows it and the padded batch has at most 4 times the tokens; else one by one. Single
// sequences do not fill a GPU.
Result run_packed(const Op&, const RunForm&, const Inputs&, const State&, const Options&);

}  // namespace horner
