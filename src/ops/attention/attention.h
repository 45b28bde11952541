// Softmax attention: the recurrence whose state grows with what it has seen.
//
//   x_ts = scale q_t.k_s                                  scale 1/sqrt(K) unless given
//          at most `clamp`, if it is given
//   o_t  = sum_s e^{x_ts} v_s / sum_s e^{x_ts}            o (B,T,H,V), over the visible s
//   norm = log sum_s e^{x_ts}                             (B,T,H)
//
//   visible        causal             both directions
//   all            s <= t             every s
//   window w       t - w < s <= t     |t - s| < w
//   sinks          and s < sinks      and s < sinks       (causal: s <= t too)
//
//   state           shape         holds
//   keys, values    (B,G,S,.)     slot j: position seen - S + j, the newest token last; empty if that is below 0.
//                                 Without a window S grows by T in each call; with a window S = w
//   seen            (B,G)         number of tokens so far
//   sinks' k and v  (B,G,n,.)     slot j: position j; only if sinks > 0. A sink that is still in the window is stored
//                                 twice; queries read the sink's copy only when it is outside their window
//
//   Keys and values are views of buffers with room after them (cache.h): a new token is written in place, an old state
//   never changes, and a fork shares its past. State::bytes() counts the slots of the view. The room is at most as large as
//   the view, and at least 64 slots.
//
//   form             computes                                               time           extra memory
//   recurrent        one query after the other: the definition              T^2 (K + V)    S
//   parallel         all pairs                                              T^2 (K + V)    T^2
//   fused parallel   the same by torch's SDPA (cuDNN on a GPU)              T^2 (K + V)    T
//   chunked          C queries at a time against the keys they can see      T S (K + V)    C S
//   fused chunked    the same by torch's SDPA                               T S (K + V)    C S
//   step             one token of the definition                            S (K + V)      S
//   fused step       one token on a CPU: each key and value is read once    S (K + V)      S / 1024
//   parallel kernel  flash attention on a GPU: windows, sinks, groups,      T S (K + V)    T
//                    packed batches, norm, from a state
//   step kernel      one token on a GPU, the keys split over blocks         S (K + V)      splits
#pragma once

#include "ops/op.h"

namespace horner {

Op attention_op();

}  // namespace horner
