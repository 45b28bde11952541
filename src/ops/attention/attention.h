// Softmax attention: the recurrence whose state grows with what it has seen.
//
//   x_ts = scale q_t.k_s                                  scale 1/sqrt(K) unless given
//          at most `clamp`, where it is given
//   o_t  = sum_s e^{x_ts} v_s / sum_s e^{x_ts}            o (B,T,H,V), over the visible s
//   norm = log sum_s e^{x_ts}                             (B,T,H)
//
//   visible        causal             both directions
//   all            s <= t             every s
//   window w       t - w < s <= t     |t - s| < w
//   sinks          and s < sinks      and s < sinks       (causal: s <= t too)
//
//   state: keys (B,G,S,K), values (B,G,S,V), seen (B,G): how many tokens came by.
//   Without a window S grows by T a call; with one, S = sinks + window, and position p >= sinks stands
//   in slot sinks + (p - sinks) mod window, a ring.
//
//   form       computes                                            time           extra memory
//   recurrent  one query after the other                           T^2 (K + V)    T
//   parallel   all pairs: torch's fused attention where it can     T^2 (K + V)    T^2; fused: T
//   chunked    C queries at a time against the keys they can see   T S (K + V)    C S
#pragma once

#include "ops/op.h"

namespace horner {

Op attention_op();

}  // namespace horner
