// The sum that `linear` and `power` share: weights that a recurrence can carry.
//
//   w_ts = phi(q_t) diag(exp(G_t - G_s)) psi(k_s)^T                       for s <= t
//   S_t  = diag(exp g_t) S_{t-1} + psi(k_t)^T v_t        S (B,G,1,F,V)    recurrent
//   y_t  = phi(q_t) S_t = sum_{s<=t} w_ts v_s            y (B,G,r,T,V)    parallel
//   chunked, with S_0 the state before the chunk and G counted from its start:
//   y_t  = phi(q_t) diag(exp G_t) S_0 + sum_{s<=t in chunk} w_ts v_s
//   S_C  = diag(exp G_C) S_0 + sum_s diag(exp(G_C - G_s)) psi(k_s)^T v_s
//   both directions: for s > t the decay is that of the tokens t+1 .. s
#pragma once

#include <functional>

#include "ops/chunks.h"

namespace horner {

struct Weights {
  std::function<at::Tensor(at::Tensor)> phi;  // features of queries            (...,K) -> (...,F)
  std::function<at::Tensor(at::Tensor)> psi;  // features of keys
  std::function<at::Tensor(at::Tensor)>
      decay;  // log-decay of the features      (...,1|K) -> (...,1|F)
  std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& g)>
      pairs;  // w_ts for s <= t, else 0                      (...,C,K) (...,C,K) -> (...,C,C)
  std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k)>
      product;  // w_ts without decay, any rows                 (...,C,K) (...,D,K) -> (...,C,D)
  double scale = 1.0;     // multiplies q before anything else
  double features = 0.0;  // F
};

// The three plain forms of such an op. norm = sum adds a value column of ones and divides by its result.
Result recurrent_sum(const Weights&, const Inputs&, const State&, const Options&);
Result parallel_sum(const Weights&, const Inputs&, const State&, const Options&);
Result chunked_sum(const Weights&, const Inputs&, const State&, const Options&);
// The log-decay of each head as a diagonal (B,T,H,1|F), and the sum of each token's weights, at least eps (B,T,H).
at::Tensor diagonal_decay(const Inputs&);
at::Tensor weight_sums(const Weights&, const Inputs&, const Options&);
State zero_sum(const c10::SymInt& F, const Inputs&, const Options&);  // (B,G,F,V), V+1 with norm = sum

}  // namespace horner
