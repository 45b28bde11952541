// The element-wise linear recurrence of S6, RG-LRU and qLSTM.
//
//   h_t = a_t h_{t-1} + v_t        h, v (B,T,H,V), a = exp g, g (B,T,H,V) or (B,T,H); o = h
//
// g is real and <= 0, or complex with a real part <= 0: its imaginary part turns (a = -1 is g = i pi).
//
//   form       computes                                                        time
//   recurrent  the line above, token by token                                  T V
//   parallel   doubling: (a, b) after (a', b') is (a a', a b' + b)             T log T V
//   chunked    doubling inside a chunk, the line above between                 T log C V
#pragma once

#include "ops/op.h"

namespace horner {

Op scan_op();

}  // namespace horner
