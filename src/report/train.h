// A run as a person sees it: progress on stderr while it goes, a small table at the end.
#pragma once

#include <chrono>

#include "tasks/task.h"
#include "train/train.h"

namespace horner {

// One line that moves on a terminal; in a pipe a line now and then.
class TrainProgress {
 public:
  explicit TrainProgress(std::string metric);  // of validation
  TrainProgress(const TrainProgress&) = delete;
  TrainProgress& operator=(const TrainProgress&) = delete;
  ~TrainProgress();  // clears the line
  void show(const TrainTick& tick);

 private:
  bool terminal_;
  std::string metric_;
  std::chrono::steady_clock::time_point shown_;
};

// Scores beside the task's baselines, then what it cost.
std::string train_summary(const TrainResult& result, const Task& task);

}  // namespace horner
