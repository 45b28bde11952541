// `delta` with a decay per key: what differs from chunked.cuh. G_t, S and Z are those of the chunk; products and
// exponentials with G are per key channel.
//
//   solve      Kr = K e^G    Qr = scale Q e^G    Kw = diag(b) K e^{G_C-G}     bf16, every chunk by itself
//              A = (I + Lh diag(b))^-1,  Lh_ts = sum_c k_tc k_sc e^{G_tc-G_sc}, s < t
//              P_ts = scale b_s sum_c q_tc k_sc e^{G_tc-G_sc}, s <= t
//   forward    E  = A (V - Kr S)        O = Qr S + P E        S' = diag(e^{G_C}) S + Kw^T E
//   reverse    dV = A^T (P^T dO + Kw Z)         Z' = diag(e^{G_C}) Z + Qr^T dO - Kr^T dV
//   gradient   W_ts = scale do_t.e_s, s <= t      U_ts = -dv_t.e_s, s < t
//              dq_t = scale e^{G_t} * (do_t S^T) + sum_s W_ts b_s e^{G_t-G_s} * k_s
//              z_t  = -e^{G_t} * (dv_t S^T)      + sum_s U_ts b_s e^{G_t-G_s} * k_s
//              y_s  = e^{G_C-G_s} * (e_s Z^T)    + sum_t e^{G_t-G_s} * (W_ts q_t + U_ts k_t)
//              dk = z + b y        db_s = k_s.y_s
//              dg_i = what flows across token i: sum_{t>=i} of q dq + k z, sum_{s<i} of b k y, of pairs s < i <= t only
//                     once, and e^{G_C} * rowsum(S * Z)
//
// A and P by halves of the chunk, as in cuda/key_decays.cuh. There lane i has the keys 8 i + 2 j + e of a slice of 32;
// S and Z in memory have them at place 8 j + 2 i + e: then units of 16 bytes of a state are columns of a product.
#pragma once

#include "cuda/key_decays.cuh"
#include "ops/delta/chunked.cuh"
