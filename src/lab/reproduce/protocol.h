// The statistics of a verdict, on one page.
//
//   scores       paired by seed: Student's interval of the differences; of a task with a plateau of guessing only from six seeds
//               on, because fewer seeds that all learn, or all do not, have no variance
//   margins      of a task with a plateau of guessing: the share of seeds that keep the margin, against a half, exact interval
//   shares       tasks that a seed solves or does not: the share of seeds that solve, exact intervals (lab/exact.h)
//   steps        to 0.9 of the validation's metric: log-rank test, unsolved seeds are censored
//   looks        after `seeds`, seeds + 2, .., `most` seeds, until the claim is decided; every interval is widened for the
//                looks that are planned (Pocock)
//   holds        every expectation is shown: 2.5 % error to each side. "No worse by more than a margin" and "within a
//               margin" are
//                tested one-sided, at 5 % (two one-sided tests): equality is shown, never assumed.
//   does not     one expectation is refuted, at 2.5 % over the number of expectations
//   untested     an arm failed, has not begun to learn, or there are too few seeds; both arms of a comparison solve the task; or
//               the setting was wrong (`revision`)
//   not shown    neither: says how many seeds it would take
//   rates        of each arm, by validation, never by the test. With three rates or more every rate first runs a quarter of the
//                steps (a whole schedule of that length), the better half runs to the end, and while the best one lies at the
//                edge of the grid, one rate beyond the edge is tried, at most two. A seed of its own does this, which is not
//                judged: it would be judged by its luckiest run.
#pragma once

#include <string>
#include <vector>

#include "lab/statistics.h"

namespace horner {

struct Protocol {
  int64_t seeds = 3;               // at the first look
  int64_t most = 0;                // at the last look; 0: there is one look
  std::vector<double> rates = {};  // learning rates to try, relative to the arm's own
  bool rate_each_seed = false;     // every seed has its own best rate; otherwise that of seed 500
  double chance = 0;               // the score of guessing; 0: there is no such plateau
  bool bimodal =
      true;  // with a plateau: a seed learns the task or does not. false: seeds differ little, as with a few classes
  double chance_cpu = 0;  // the same at small scale, where the task may be smaller; 0: as `chance`
  std::vector<std::string> guessing = {};  // arms of which the paper reports that they guess
  double solved =
      0;  // the score from which a seed counts as solved; 0: 0.99 of the best seed of all arms, itself 0.9 at least

  std::vector<int64_t> looks() const;  // numbers of seeds: 4, 6, 8
};

// The errors of the intervals that decide, widened for the looks; both sides together.
struct ErrorShares {
  double shown, one_sided, refuted;
};
ErrorShares errors_of(const Protocol&, size_t expectations);

constexpr double kSteps = 0.9;  // the validation score that `sooner` waits for

}  // namespace horner
