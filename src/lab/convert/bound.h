// How far the output of a head can be from softmax's, proved in docs/certificate.md.
//
//   near    the tokens that the head reads exactly: the last w and the first s (sinks)
//   tau_t   softmax's weight of the other tokens, the far ones                      M_t  max |v_u|, u <= t
//
//   far tokens left out                 |o^_t - o_t| <= 2 tau_t M_t
//   far weights e^b (1 + d) times       |o^_t - o_t| <= 2 f tau_t / (1 - f tau_t) M_t,   |d| <= e,
//   softmax's                           f = max(e^b (1 + e) - 1, 1 - e^b (1 - e))
//   series of order n around centres    e = B^{n+1} e^B / (n+1)!,   B = |q_t| max |k_u - mu(u)| / sqrt K over far u <= t
//   always                              |o^_t - o_t| <= 2 M_t: weights are positive. A bound that says no more is vacuous
#pragma once

#include <optional>

#include "mixers/mixer.h"

namespace horner {

// What a mixer does with the far tokens, as the bound needs it.
struct Approximation {
  int64_t window = 0, sinks = 0;  // window 0: no token is read exactly
  bool drops = false;             // far tokens are left out
  int64_t order = 0;
  at::Tensor centres;  // (G,C,K): a key belongs to the nearest one
  at::Tensor bias;     // (H): b
};

// Nothing if no bound is known for this mixer: its weights are not a series of softmax's.
std::optional<Approximation> approximation_of(const MixerSpec& spec, const Mixer& mixer);

double series_error(double B, int64_t order);  // e

// Of one head, for each token.
struct HeadBound {
  at::Tensor bound;  // (T)
  at::Tensor most;   // (T): 2 M_t
  at::Tensor tail;   // (T): tau_t
  double B = 0;      // its largest value; 0 if far tokens are left out
};

// core: of the trained layer, causal attention over all past tokens. `row` of its batch.
HeadBound bound_of(const Approximation& a, const Core& core, int64_t row, int64_t head);

}  // namespace horner
