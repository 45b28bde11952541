// Undecided claims, the cheapest first. Where several runs go at once, claims of about `pool` minutes share one pool.
//
// A claim is open as long as it has no finding of its present revision, or is not shown and has seeds left, or has a run
// that failed
// (these come last). With `confirm` the decided claims that were not yet confirmed are open.
#pragma once

#include "lab/reproduce/budget.h"

namespace horner {

struct Queued {
  const Paper* paper;
  const Claim* claim;
  ClaimCost first, all;  // at the first look, at the last
  std::string status;    // "not yet run", "holds", "not shown, 4 of 12 seeds", ..
  bool open, failed = false;
};

// Open and other claims of these papers, the cheapest first, surveys last; findings from o.out/PAPER.json.
std::vector<Queued> queue_of(const std::vector<const Paper*>& papers, const ReproduceOptions& o);

// Tests the open claims in this order until all are tested or a TimeLimit is reached. `done` is called after each pool, once
// for each paper that has new findings; it is expected to add them to o.out. A pool that is cut has the findings of the claims
// whose runs have all finished. Results go through o.record, which is written after each claim and every
// half minute in which a run has finished, so that a program that is killed loses little.
void run_queue(
    const std::vector<const Paper*>& papers,
    const ReproduceOptions& o,
    const std::string& program,
    const RunsTell& tell,
    const std::function<void(Reproduction&)>& done
);

}  // namespace horner
