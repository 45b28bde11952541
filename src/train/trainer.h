// One process of a run: the model, its optimiser and its progress.
#pragma once

#include <chrono>
#include <mutex>

#include "train/checkpoint.h"
#include "train/cost.h"
#include "train/distributed.h"
#include "train/evaluate.h"
#include "train/prefetch.h"
#include "train/run_folder.h"
#include "train/sampler.h"
#include "train/step.h"

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
      std::shared_ptr<Processes> processes,
      const Objective* objective = nullptr  // null: the task's loss
  );
  TrainResult run();  // finished in the first process only

 private:
  bool first() const { return !processes_ || processes_->first(); }
  std::vector<double> over_all(std::vector<double> numbers) {  // the sum over processes
    return processes_ ? processes_->sum(std::move(numbers)) : numbers;
  }
  std::string checkpoints() const { return folder_ + "/checkpoints"; }
  std::vector<TargetBatch> parts(Sampler& sampler, int64_t step) const;
  std::vector<TargetBatch> next(Prefetch& data);
  void step(std::vector<TargetBatch> parts);
  // Reads the numbers of steps, and writes the lines of the log that wait for them. The run stops at the first number that is
  // not finite. wait: those of all steps so far; else what has arrived.
  void read_numbers(bool wait);
  void check(const Step::Numbers& numbers);
  void log();
  bool validate();  // whether the target is reached
  void save();
  void stop_if_interrupted();
  // Processes that share the optimiser out score together. The result is there in the first one.
  Scores score(const Task& task, Split split, int64_t batch);
  struct Tests {
    Scores valid, test;
    std::map<int64_t, Scores> lengths;
  };
  Tests test();
  TrainResult finish(const Tests& tests);
  bool shares() const { return optimizer_.share().shard != Shard::none; }
  TrainTick tick() const;

  const TrainOptions o_;
  const std::shared_ptr<Task> task_;
  const std::string folder_;
  const TrainTell tell_;
  const at::Device device_;
  const std::shared_ptr<Processes> processes_;  // null: only this one
  const Objective* const objective_;            // then the task's splits are not scored
  std::shared_ptr<Model> model_;
  Optimizer optimizer_;
  std::unique_ptr<GatheredBlocks> gathered_;  // with train.shard = full
  std::unique_ptr<PassedStates> states_;      // with train.sequence_parallel > 1
  Step step_;
  const Json belongs_;  // settings and data that checkpoints name
  std::vector<std::string> notes_;
  TrainerState state_;
  mutable std::mutex sampler_mutex_;
  std::unique_ptr<Metrics> metrics_;
  std::deque<Json> lines_;  // of the log, without the numbers that are still on the device
  double loss_, norm_, valid_, lr_ = 0;  // of the last step that was read
  double stated_flops_ = 0;              // of all processes together, per second; 0: not known
  Scores scores_;                        // of the last validation
  int64_t scored_at_ = -1;
  int64_t unproved_ = -1;  // step of the newest checkpoint, whose loss comes next
  bool resumed_ = false, leave_ = false;
  Cost cost_;  // in the first process
  std::chrono::steady_clock::time_point start_;
  double waited_ = 0;          // seconds, for examples
  double seconds_before_ = 0;  // of earlier processes
  int64_t steps_before_ = 0, tokens_before_ = 0;
};

}  // namespace horner
