// Linear attention with decay: RetNet, GLA, MetaLA, Mamba-2 and mLSTM are this recurrence.
//
//   S_t = diag(a_t) S_{t-1} + k_t^T v_t        S (B,G,K,V), a = exp g: none, per head, or per key dim
//   o_t = scale q_t S_t                        o (B,T,H,V)
//   norm = sum:  o_t / (scale q_t z_t), z the same recurrence with v = 1; S gains z as its last column
//   i, norm = bounded:  keys weighted by e^{i_t}, o_t / max(|scale q_t z_t|, 1): mLSTM, exponential_gate.h
//
//   form       computes                                            time               extra memory
//   recurrent  the lines above, token by token                     T K V              K V
//   parallel   O = (Q K^T * D) V,  D_ts = exp(G_t - G_s), s <= t   T^2 (K + V)        T^2
//   chunked    parallel inside a chunk, recurrent between          T C (K+V) + T K V  T C + (T/C) K V
//
// Per key dim, D has a K axis too; the chunk is halved log2(C) times so that it is never formed
// (decayed_products in ops/chunks.cpp). Both directions: see ops/weighted_sum.h.
#pragma once

#include "ops/op.h"

namespace horner {

Op linear_op();

}  // namespace horner
