// `delta` with a decay per key: what differs from chunked.cuh. G_t is a number per key; products and exponentials with G are
// taken key by key.
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
//              dg_i = what flows across token i: sum_{t>=i} of q dq + k z, sum_{s<i} of b k y, each pair s < i <= t counted
//                     once, and e^{G_C} * rowsum(S * Z)
//
// A and P are computed by halves of the chunk (cuda/key_decays.cuh). There lane i holds keys 8 i + 2 j + e of a slice of 32.
// Kr, Qr, Kw, S, Z and e^{G_C} store this key at place 8 j + 2 i + e, so a 16-byte unit of a state is columns of a product.
#pragma once

#include "cuda/key_decays.cuh"
#include "ops/delta/chunked.cuh"

namespace horner::cuda {
namespace {

// The place of a key in a row of Kr, Qr, Kw, S, Z or e^{G_C}.
__device__ inline int place_of_key(int key) {
  return (key & ~31) | (key & 6) << 2 | (key >> 3 & 3) << 1 | (key & 1);
}
__device__ inline int key_at_place(int place) {
  return (place & ~31) | (place >> 1 & 3) << 3 | (place >> 3 & 3) << 1 | (place & 1);
}

}  // namespace
}  // namespace horner::cuda
