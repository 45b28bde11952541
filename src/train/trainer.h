// One process of a run: the model, its optimiser and its progress.
#pragma once

#include <chrono>

#include "train/checkpoint.h"
#include "train/cost.h"
#include "train/distributed.h"
#include "train/evaluate.h"
#include "train/prefetch.h"
#include "train/run_folder.h"
#include "train/sampler.h"

namespace horner {

class Trainer {
 public:
  // Continues from the newest checkpoint of `folder`. Only the first of several processes writes there.
  Trainer(
      const TrainOptions& resolved,
      std::shared_ptr<Task> task,
      std::shared_ptr<Model> model,
      const std::string& folder,
      const TrainTell& tell,
      std::shared_ptr<Processes> processes
  );
  TrainResult run();  // finished in the first process only

 private:
  struct Pending {  // a step whose numbers are still on the device
    int64_t step;
    at::Tensor loss, norm;
    double count, lr;
  };

  bool first() const { return !processes_ || processes_->first(); }
  std::vector<double> over_all(std::vector<double> numbers) {  // the sum over processes
    return processes_ ? processes_->sum(std::move(numbers)) : numbers;
  }
  std::vector<TargetBatch> parts(Sampler& sampler, int64_t step) const;
  void step(std::vector<TargetBatch> parts);
  void read_pending(
  );  // reads the pending numbers, and stops the run at the first that is not finite
  void log();
  bool validate();  // whether the target is reached
  void save();
  void stop_if_interrupted();
  Scores score(const Task& task, Split split, int64_t batch);
  TrainResult finish();
  TrainTick tick() const;

  const TrainOptions o_;
  const std::shared_ptr<Task> task_;
  const std::string folder_;
  const TrainTell tell_;
  const at::Device device_;
  const std::shared_ptr<Processes> processes_;  // null: only this one
  std::shared_ptr<Model> model_;
  Optimizer optimizer_;
  TrainerState state_;
  std::unique_ptr<Metrics> metrics_;
  std::vector<Pending> pending_;
  double loss_, norm_, valid_, lr_ = 0;  // of the last step that was read
  Scores scores_;                        // of the last validation
  int64_t scored_at_ = -1;
  bool resumed_ = false, leave_ = false;
  Cost cost_;  // in the first process
  std::chrono::steady_clock::time_point start_;
  double waited_ = 0;          // seconds, for examples
  double seconds_before_ = 0;  // of earlier processes
  int64_t steps_before_ = 0, tokens_before_ = 0;
};

}  // namespace horner
