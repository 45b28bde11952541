// Scores of a model on a split of a task.
//
//   loss                mean over everything that counts
//   accuracy            share of right answers of an example, then the mean over examples
//   sequence accuracy   examples without a wrong answer
//   late accuracy       of the last quarter of an example's positions
//   first error         answers of an example before the first wrong one, or all
//   free-running ...    accuracies of answers that are read back as the next tokens (Task)
//   matthews            correlation of two classes (phi); 0 for a constant answer
//   mse                 for numbers: the loss
//   bits per byte       loss of all positions in bits, divided by the bytes of their text
//   NAME/METRIC-VALUE   the task's metric over the examples whose slice NAME is VALUE
//
// by_example is the task's metric of each example. For bits per byte the examples of a batch share its bytes by their targets.
// loss_by_position is the mean loss in at most 32 equal ranges of positions. Losses are in nats.
#pragma once

#include "core/interrupt.h"
#include "train/loss.h"
#include "train/train.h"

namespace horner {

bool smaller_is_better(std::string_view metric);

// Collects the answers of a model, batch after batch.
class ScoreSum {
 public:
  explicit ScoreSum(std::string metric) : metric_(std::move(metric)) {}
  void add(const TargetBatch& batch, const Losses& losses);
  void add_free(const at::Tensor& right);  // (B,n): whether each answer was right
  Scores scores() const;

 private:
  struct Slice {
    double sum = 0;
    int64_t count = 0;
  };
  // Sums over the targets of one example. unbroken: right ones before the first wrong one; late: in the last quarter.
  struct Example {
    double loss = 0, hits = 0, count = 0, unbroken = 0, late_hits = 0, late_count = 0;
  };
  // each, right (n): the loss of each target, and whether the answer was right.
  std::vector<Example> add_targets(
      const TargetBatch&, const at::Tensor& each, const at::Tensor& right
  );
  double add_example(const Example&, double unit);  // returns its score
  const std::string metric_;
  std::vector<double> by_example_, accuracy_, right_, first_error_;  // per example; NaN-free
  std::vector<double> late_, free_, free_right_;                     // per example
  std::vector<double> position_loss_;
  std::vector<int64_t> position_count_;
  std::map<std::string, Slice> slices_;
  double loss_ = 0, bytes_ = 0;
  int64_t count_ = 0;
  double pairs_[2][2] = {};  // of two classes: [right one][said]
  bool numbers_ = false;
};

// The answers at the last n tokens, one after the other, each read back.   (B,T) -> (B,n)
at::Tensor run_free(
    Model& model,
    const at::Tensor& tokens,
    int64_t n,
    const std::function<bool()>& stop = interrupted
);

struct EvaluateOptions {
  int64_t examples = 0;  // 0: all
  int64_t batch = 64;
  bool bf16 = false;
  bool keep_weights = true;                  // rounded ones, until the end
  std::function<bool()> stop = interrupted;  // asked before each batch and each answer
  bool ask_layers = true;                    // and before each layer, if nothing else watches them
};
Scores evaluate(
    Model& model, const Task& task, Split split, const EvaluateOptions& options, at::Device device
);

}  // namespace horner
