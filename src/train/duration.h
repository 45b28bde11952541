// How long a run would take on this machine: a few of its steps are timed.
#pragma once

#include "train/cost.h"

namespace horner {

struct Duration {
  double step = 0;   // seconds of one step; NaN: not measured
  double total = 0;  // of all steps and evaluations. A run that reaches its target ends earlier.
  std::string why;   // it was not measured; empty: it was
  Json json() const;
};

// Makes the model and trains it for five steps of a batch that takes about a second at most. A model or an example that is too
// large for that is not tried.
Duration duration_of(const TrainOptions& resolved, const Task& task, const Cost& cost);

}  // namespace horner
