// States of a packed batch of `attention`, all sequences at once.
//
//   tokens of the call   (1,tokens,G,X), sequence n has the tokens starts[n] .. starts[n+1]
//   state                (sequences,G,S,X), the newest token in the last slot
#pragma once

#include "ops/attention/plain.h"

namespace horner {

// The keys (or values) of all sequences one after the other: of each the filled slots of its state, then its own tokens.
struct PackedKeys {
  at::Tensor k, v;    // (at least all keys,G,.)
  at::Tensor starts;  // (sequences + 1), int32: the first key of each sequence
};
PackedKeys attention_packed_keys(const Inputs&, const State&);

// As attention_sinks and attention_next_state, for cu_seqlens. longest: tokens of the longest sequence. Not differentiable.
Sinks attention_packed_sinks(const Inputs&, const State&, const Options&);
State attention_packed_state(const Inputs&, const State&, const Options&, int64_t longest);

}  // namespace horner
