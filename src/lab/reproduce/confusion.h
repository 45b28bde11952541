// How often do two different queries get the same weights? (arXiv:2412.06590)
//
//   w_i = the weights of query i over all T tokens, as if it were asked at the end
//   a pair (i,j) is confused if |w_i - w_j| <= 1e-3 |w_i| while |q_i - q_j| > 1e-1 |q_i|
//
// The authors' measurement is not public; this is our own. Softmax is injective in the query if the keys span the space.
// Linear attention that divides by a sum gives q and 2 q the same weights. q is what the op gets, after position and feature
// map. If the mixer divides by a number of its own, the number at the query's own position is used.
#pragma once

#include "core/json.h"
#include "nn/core.h"

namespace horner {

struct Confusion {
  struct Head {
    double pairs, tokens;  // share of pairs that are confused, of tokens that have such a partner
  };
  std::vector<Head> heads;  // none: the mixer has no queries
  double doubled = 0;       // mean |w(2 q) - w(q)| / |w(q)|: 0 if the length of a query is ignored
  double nearest = 0;       // median over queries of the least |w_i - w_j| / |w_i|
  Json json() const;
};

Confusion confusion(const Core& core);  // of the first sequence; at most 64 queries, the last ones

}  // namespace horner
