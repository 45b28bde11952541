// Scores of a model on a split of a task.
//
//   loss                mean over everything that counts
//   accuracy            share of right answers of an example, then the mean over examples
//   sequence accuracy   examples without a wrong answer
//   mse                 of numbers: the loss
//   bits per byte       loss in bits, of all positions, by the bytes of text that they stand for
//   NAME/METRIC-VALUE   the task's metric over the examples whose slice NAME is VALUE
//
// by_example is the task's metric of each example (the mean loss where it is bits per byte), and
// loss_by_position the mean loss in at most 32 equal stretches of positions.
#pragma once

#include "train/loss.h"
#include "train/train.h"

namespace horner {

bool smaller_is_better(std::string_view metric);

// Sums up what a model said, batch after batch.
class ScoreSum {
 public:
  explicit ScoreSum(std::string metric) : metric_(std::move(metric)) {}
  void add(const Counted& batch, const Losses& losses);
  Scores scores() const;

 private:
  struct Slice {
    double sum = 0;
    int64_t count = 0;
  };
  const std::string metric_;
  std::vector<double> by_example_, accuracy_, right_;  // per example; NaN-free
  std::vector<double> position_loss_;
  std::vector<int64_t> position_count_;
  std::map<std::string, Slice> slices_;
  double loss_ = 0, bytes_ = 0;
  int64_t count_ = 0;
  bool numbers_ = false;
};

struct EvaluateOptions {
  int64_t examples = 0;  // 0: all
  int64_t batch = 64;
  bool bf16 = false;
};
Scores evaluate(
    Model& model, const Task& task, Split split, const EvaluateOptions& options, at::Device device
);

}  // namespace horner
