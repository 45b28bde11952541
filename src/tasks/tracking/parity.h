// Parity: the simplest state to track (arXiv:2411.12537).
//
//   ids: 0 pad, 1, 2; all tokens uniform, lengths uniform
//   parity     target 1 + sum_s (x_s - 1) mod 2, at the last token
//   cumparity  target 1 + sum_{s<=t} (x_s - 1) mod 2, at every token
#pragma once

#include "tasks/examples.h"

namespace horner {

class Parity : public Generated {
 public:
  using Options = LengthOptions;
  explicit Parity(const Options& options, bool every = false);
  TaskShape shape() const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
  const bool every_;  // a target at every token
};

struct Cumparity : Parity {
  struct Options : LengthOptions {
    Options() {
      shortest = test_shortest = 4;
      longest = test_longest = 128;
      train = 100000;
    }
  };
  explicit Cumparity(const Options& options) : Parity(options, true) {}
};

}  // namespace horner
