// The name of one number of a run, the same in metrics.jsonl, in `expect` and in a paper's claims.
//
//   valid/METRIC  test/METRIC     on that split, at the end
//   test_T512/METRIC              on the test with sequences of 512 tokens, one of eval.lengths
//   valid/best                    the best value of the task's metric over all validations
#pragma once

#include "train/train.h"

namespace horner {

struct ScoreName {
  std::string split;   // "valid", "test", "test_T512"
  std::string metric;  // "accuracy", "loss", "num_kv_pairs/accuracy-64", "best"
  static ScoreName parse(std::string_view text);  // UsageError if it is none of the above
  static ScoreName at_length(int64_t T, std::string metric);
  std::string text() const { return split + "/" + metric; }
};

double score_of(
    const TrainResult& result, const ScoreName& name
);  // NaN: the run has no such score

}  // namespace horner
