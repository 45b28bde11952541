// A thread that makes the batches of the next steps while the current step is computed.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "train/loss.h"

namespace horner {

class Prefetch {
 public:
  // `make(step)` gives the parts of a step's batch; steps first .. last-1, each asked for once.
  Prefetch(int64_t first, int64_t last, std::function<std::vector<TargetBatch>(int64_t)> make);
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  ~Prefetch();

  std::vector<TargetBatch> next();  // of the next step; throws what `make` threw

 private:
  static constexpr size_t kAhead = 2;

  void work(int64_t first, int64_t last);

  const std::function<std::vector<TargetBatch>(int64_t)> make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<TargetBatch>> ready_;
  std::exception_ptr failure_;
  bool leave_ = false;
  std::thread thread_;  // the last member: it starts when all others exist
};

}  // namespace horner
