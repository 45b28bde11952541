// Tests that keep their level with few seeds.
//
//   share of seeds that solve   Clopper-Pearson; two arms: the exact unconditional test of Barnard, with the score statistic
//                               of Farrington and Manning, so that any difference of the shares can be tested
//   steps until a seed solves   log-rank scores, every assignment of the seeds to the arms; unsolved seeds are censored
//   several looks at the data   Pocock: the same level at every look, smaller than that of one look
#pragma once

#include <cstdint>
#include <vector>

namespace horner {

struct Range {
  double low = 0, high = 0;
};

struct Share {
  int64_t yes = 0, n = 0;
  double value() const { return double(yes) / double(n); }
};

// `error`: probability that the range misses the truth, half of it on each side.
Range clopper_pearson(Share share, double error);

// P(a difference as large as this or larger), the largest over all p_a, p_b with p_a - p_b = difference: small if p_a - p_b is
// greater than `difference`.
double share_p(Share a, Share b, double difference = 0);
// All differences p_a - p_b that share_p does not reject on either side at error / 2.
Range share_difference(Share a, Share b, double error);

// A seed and the step at which it solved; otherwise its last step.
struct Reached {
  int64_t step = 0;
  bool solved = false;
};

// P(a is at least as much sooner than b as observed) if both arms are alike: all assignments if there are at most 20,000,
// otherwise 20,000 random ones.
double log_rank_p(const std::vector<Reached>& a, const std::vector<Reached>& b);
double median_step(std::vector<Reached> seeds);  // infinity: fewer than half have solved

// The error of each look such that the probability of an error at any look is `error`; `looks`: numbers of seeds, rising.
double pocock_level(const std::vector<int64_t>& looks, double error);

}  // namespace horner
