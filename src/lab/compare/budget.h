// Equal budgets: settings of a mixer, and a width of the model, that cost as much as a reference.
//
//   params   numbers that are trained
//   state    bytes that one sequence of the task's length keeps, over all layers
//   flops    matrix products of a token's forward
//
// It tries all D near that of the reference (multiples of 8 from D/2 to 2 D), and the settings that decide the sizes of keys,
// values and features: heads, expand_k, expand_v, expand, state, head, key, order. Settings that the user gave stay. Among
// the candidates within 1 % it takes the one that changes least; if there is none, the nearest.
#pragma once

#include <functional>

#include "model/model.h"

namespace horner {

struct Budget {
  std::string mixer;  // with its settings, as in a pattern
  int64_t D = 0;
  double cost = 0, target = 0;
  double mismatch() const { return cost / target - 1; }
  int64_t tried = 0;
};

// Cost of a model with this mixer and width D; UsageError if there is no such model.
using CostOf = std::function<double(const std::string& mixer, int64_t D)>;

Budget solve_budget(const std::string& mixer, int64_t D, double target, const CostOf& cost);

}  // namespace horner
