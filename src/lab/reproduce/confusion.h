// How often do two different tokens get the same weights? (arXiv:2412.06590)
//
//   w_i = the weights of token i over all T tokens; with a causal mixer as if a copy of token i were asked after all of them
//   a pair (i,j) is confused if |w_i - w_j| <= 1e-3 |w_i| while |x_i - x_j| > 1e-1 |x_i|, x the input of the mixer
//   q and 2 q: the weights before and after the projection of the queries is doubled
//
// The authors' measurement is not public; this is our own. Everything is asked of the mixer itself, so that what depends on the
// query beside it (InLine's (1 - q.z)/n) follows, and what a feature map makes equal counts as equal. Softmax is injective in the
// query if the keys span the space. Linear attention that divides by a sum gives q and 2 q the same weights.
#pragma once

#include "core/json.h"
#include "mixers/mixer.h"

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

// Of a sequence x (1,T,D); at most 64 queries, the last ones.
Confusion confusion(Mixer& mixer, const at::Tensor& x);

}  // namespace horner
