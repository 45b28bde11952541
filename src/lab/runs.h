// Several runs: one after the other in this process, or several programs at once.
#pragma once

#include "train/train.h"

namespace horner {

struct RunOutcome {
  TrainResult result;
  std::string failure;  // one line; empty: it finished
};

// Progress over the runs that were not finished before.
struct RunsTick {
  int64_t steps_done, steps, runs_done, runs;
  std::string what;
};
using RunsTell = std::function<void(const RunsTick&)>;

enum class Runs { best, programs };  // how several run at once

std::string folder_of(const TrainOptions& run);  // of a run that has a name
bool finished(const TrainOptions& run);

// Every run has a name. Finished runs are only read. If a run fails, its error is recorded and the others continue. Several at
// once on one GPU are threads of this process (run_threads.h). Else they are programs, each with its share of the cores or
// its GPU. `program`: path of this program; empty: one after the other in this process.
std::vector<RunOutcome> run_all(
    const std::vector<TrainOptions>& runs,
    size_t at_once,
    const std::string& program,
    const RunsTell& tell,
    Runs how = Runs::best
);

}  // namespace horner
