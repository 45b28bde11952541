// The delta rule with decay: a write replaces what the key already recalls (arXiv:2406.06484, 2412.06464, 2510.26692).
//
//   S^  = diag(a_t) S_{t-1}                    a = exp g: none, per head (B,T,G) or per key (B,T,G,K)
//   e_t = v_t - k_t S^                         what the state gets wrong
//   S_t = S^ + beta_t k_t^T e_t                S (B,G,K,V), beta in (0,2)
//   o_t = scale q_t S_t                        o (B,T,H,V)
//
//   form       computes                                                   time
//   recurrent  the lines above, token by token                            T K V
//   parallel   one chunk of T tokens                                      T^3 + T^2 (K + V)
//   chunked    the WY form: with G_t = g_1 + .. + g_t in the chunk,       T C^2 + T C (K+V) + T K V
//              L_ts = beta_t sum_c k_tc k_sc e^{G_tc-G_sc}, s < t
//              P_ts = sum_c q_tc k_sc e^{G_tc-G_sc}, s <= t
//              U  = (I + L)^-1 diag(beta) (V - (K e^G) S)                 the errors written, beta_t e_t
//              O  = (Q e^G) S + P U
//              S' = diag(e^{G_C}) S + (K e^{G_C-G})^T U
//
// Keys of unit length keep the state bounded for beta <= 2; the op does not normalise them.
#pragma once

#include "ops/op.h"

namespace horner {

Op delta_op();

}  // namespace horner
