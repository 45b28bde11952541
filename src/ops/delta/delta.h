// The delta rule with decay: a write replaces what the key already recalls (arXiv:2406.06484, 2412.06464).
//
//   e_t = v_t - k_t (a_t S_{t-1})              what the state gets wrong
//   S_t = a_t S_{t-1} + beta_t k_t^T e_t       S (B,G,K,V), a = exp g per head or none, beta in (0,2)
//   o_t = scale q_t S_t                        o (B,T,H,V)
//
//   form       computes                                                   time
//   recurrent  the lines above, token by token                            T K V
//   parallel   one chunk of T tokens                                      T^3 + T^2 (K + V)
//   chunked    the WY form: with M_ts = exp(G_t - G_s), s <= t,           T C^2 + T C (K+V) + T K V
//              L = diag(beta) strict_lower(M * K K^T)
//              U = (I + L)^-1 diag(beta) (V - diag(e^G) K S)              the errors written, beta_t e_t
//              O = diag(e^G) Q S + (M * Q K^T) U
//              S' = e^{G_C} S + (diag(e^{G_C-G}) K)^T U
//
// Keys of unit length keep the state bounded for beta <= 2; the op does not normalise them.
#pragma once

#include "ops/op.h"

namespace horner {

Op delta_op();

}  // namespace horner
