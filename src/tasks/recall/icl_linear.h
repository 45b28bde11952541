// Linear regression in context (arXiv:2208.01066).
//
//   w, x_i ~ N(0, I_d),  y_i = w.x_i + sigma noise_i                       i = 0 .. n-1
//   features (B,2n,d): row 2i = x_i, row 2i+1 = (y_i, 0, .., 0);  values: y_i at row 2i
//
// Curriculum: live dims start_d .. d, one more per stage, the others 0; points start_n .. n, two
// more per stage, then padding. A stage is `stage` training examples (the paper's 2000 steps of 64), so the stage of an
// example follows from its index.
//
// Prompts of validation and test may be shifted: x with a skewed covariance (its i-th eigenvalue ~ 1/i^2) or in half of the
// space, both of trace d; noise on y; all x in one orthant and the last in the opposite one, or the last orthogonal to all
// others. In the last two cases only the last x counts.
#pragma once

#include "tasks/examples.h"

namespace horner {

struct IclLinearOptions : ExampleOptions {
  int64_t d = 20, n = 41;
  double sigma = 0;
  std::string shift = "none";
  int64_t start_d = 5, start_n = 11, stage = 128000, steps = 12;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("d", d, "dims of x");
    visit("n", n, "points of a prompt");
    visit("sigma", sigma, "deviation of the noise on y");
    visit(
        "shift",
        shift,
        "how prompts of validation and test differ from those of training",
        {"none", "skewed", "half", "noisy", "opposite", "orthogonal"}
    );
    visit("start_d", start_d, "live dims at the start of the curriculum");
    visit("start_n", start_n, "points at its start");
    visit("stage", stage, "examples of one of its stages; 0: no curriculum");
    visit("steps", steps, "gradient steps of that baseline: what as many linear layers can do");
    ExampleOptions::visit(visit);
  }
};

class IclLinear : public Task {
 public:
  using Options = IclLinearOptions;
  explicit IclLinear(const Options& options);
  TaskShape shape() const override;
  int64_t size(Split split) const override { return o_.size(split); }
  Batch batch(Split split, const std::vector<int64_t>& indices) const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  std::string metric() const override { return "loss"; }
  Json options() const override { return to_json(o_); }

 private:
  const Options o_;
};

}  // namespace horner
