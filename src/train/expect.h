// What a run is expected to give, written down before it is run.
//
//   SCORE >= x      SCORE <= x      SCORE = x +- y
//
//   SCORE   test/NAME, valid/NAME, test_T512/NAME (at one of eval.lengths), as in metrics.jsonl;
//           valid/best: the best value of the task's metric over all validations
#pragma once

#include "train/train.h"

namespace horner {

void check_expectation(const std::string& text);  // UsageError that says how one is written

struct Answer {
  std::string expected;
  double measured;  // NaN: the run has no such score
  bool holds;
};
std::vector<Answer> answers(const TrainResult& result);  // to options.expect

}  // namespace horner
