// mLSTM (arXiv:2405.04517): `linear` with an exponential input gate i, kept in range by a running maximum.
//
//   C_t = e^{g_t} C_{t-1} + e^{i_t} k_t^T v_t      n_t the same with v = 1
//   o_t = q_t C_t / max(|q_t n_t|, 1)              g log of the forget gate <= 0, i any number
//
// With m_t = max(g_t + m_{t-1}, i_t) and S = [C, n] e^{-m}, this is `linear` on other inputs:
//   g'_t = g_t + m_{t-1} - m_t <= 0      k'_t = k_t e^{i_t - m_t}      v'_t = [v_t, 1]
//   o_t  = num_t / max(|den_t|, e^{-m_t}),  [num_t, den_t] = q_t S_t
// The output does not depend on m, so the gradient treats m as a constant. State: S (B,G,K,V+1), m (B,G).
#pragma once

#include "ops/op.h"

namespace horner {

// What `linear` gets instead of the gate, (B,T,G): g', i - m, e^{-m}; and m after the last token (B,G).
struct Stabilised {
  at::Tensor g, gain, floor, last;
};
Stabilised stabilise(const Inputs& in, const State&);

Inputs without_gate(const Inputs& in, const Stabilised&);  // q, k', v' and g', in fp32 at least
Result bounded(
    const Result& y, const Stabilised&, const Inputs& in
);  // o and state of the call with the gate

}  // namespace horner
