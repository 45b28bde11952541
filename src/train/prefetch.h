// Threads that make the batches of the next steps while the current step is computed.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "train/loss.h"

namespace horner {

class Prefetch {
 public:
  // `make(step)` gives the parts of a step's batch; steps first .. last-1, each asked for once, by any of `threads` threads.
  Prefetch(
      int64_t first,
      int64_t last,
      std::function<std::vector<TargetBatch>(int64_t)> make,
      int64_t threads = 1
  );
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  ~Prefetch();

  std::vector<TargetBatch> next();  // of the next step; throws what `make` threw

 private:
  static constexpr int64_t kAhead = 2;  // steps for each thread

  void work();

  const std::function<std::vector<TargetBatch>(int64_t)> make_;
  const int64_t last_, ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t asked_, taken_;  // the steps that come next: to be made, and to be handed out
  std::map<int64_t, std::vector<TargetBatch>> ready_;
  std::map<int64_t, std::exception_ptr> failures_;
  bool leave_ = false;
  std::vector<std::thread> threads_;  // the last member: they start when all others exist
};

}  // namespace horner
