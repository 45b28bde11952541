// What the runs of a claim cost on one H200, estimated before they run.
//
//   seconds of a step = 0.3 ms + 0.17 ns B T D L, at least 0.5 ms L: a GPU begins no more kernels, however small they are
//   without a CUDA graph (dropout, packed) 3 ms instead of 0.3, several programs at once
//   LUNA's maps: 0.15 ns more for each feature of each head, token and layer
//
// From docs/bench.md: 1,000 steps/s of four runs of recall at once (B T D L = 4.2 M), 128 ms for a step of a model of 275 M
// parameters (755 M); from docs/results/runs_h200.jsonl.xz: 770 to 1,000 steps/s of 14 runs of MAD at once (L = 2), of 32 tokens
// as of 128. Runs that stop at their target take less, scans and long convolutions more.
#pragma once

#include "lab/reproduce/reproduce.h"

namespace horner {

double step_seconds(const TrainOptions& run);

struct ClaimCost {
  int64_t runs = 0;
  double steps = 0, seconds = 0;  // of all runs together
  double minutes() const { return seconds / 60; }
};
// With this number of seeds: learning rates as protocol.h says, one of them beyond the grid. --confirm takes less: it has
// its rates.
ClaimCost budget(const Claim& claim, Effort scale, int64_t seeds);
// The first looks of several claims, in which equal runs count once.
ClaimCost first_looks(const std::vector<const Claim*>& claims, Effort scale);

std::string words(const ClaimCost&);  // "46 runs, 184 k steps, 4.1 minutes"
// "the first look takes 46 runs, .. of one H200 (estimated)"; of a claim with trainings.
std::string first_look(const Claim& claim);

}  // namespace horner
