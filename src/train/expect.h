// What a run should reach, written down before it runs.
//
//   SCORE >= x      SCORE <= x      SCORE = x +- y      as in test/accuracy >= 0.99 (score.h)
#pragma once

#include "tasks/task.h"
#include "train/score.h"

namespace horner {

struct Bound {
  ScoreName score;
  std::string relation;  // ">=", "<=", "="
  double value = 0, margin = 0;
  static Bound parse(std::string_view text);  // UsageError that says how one is written
  bool holds(double x) const;                 // false of NaN
};

// UsageError if the run cannot have this score. Whether a slice has examples is known only when they are read.
void check_score(const ScoreName& score, const TrainOptions& options, const Task& task);

struct Answer {
  std::string expected;
  double measured;  // NaN: the run has no such score
  bool holds;
};
std::vector<Answer> answers(const TrainResult& result);  // to options.expect

}  // namespace horner
