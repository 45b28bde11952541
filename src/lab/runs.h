// Several runs: one after the other in this process, or several programs at once.
#pragma once

#include "train/train.h"

namespace horner {

struct RunOutcome {
  TrainResult result;
  std::string failure;  // one line; empty: it finished
};

// `what` is the run's progress in words; `finished` runs of all.
using RunsTell = std::function<void(size_t finished, const std::string& what)>;

// Finished runs are only read again; an error of one is its failure, and the rest goes on.
std::vector<RunOutcome> run_all(
    const std::vector<TrainOptions>& runs, int64_t at_once, const RunsTell& tell
);

}  // namespace horner
