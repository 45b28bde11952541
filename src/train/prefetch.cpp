#include "train/prefetch.h"

#include <c10/util/ParallelGuard.h>

namespace horner {

Prefetch::Prefetch(
    int64_t first, int64_t last, std::function<std::vector<TargetBatch>(int64_t)> make
)
    : make_(std::move(make)), thread_([this, first, last] { work(first, last); }) {}

Prefetch::~Prefetch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leave_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetch::work(int64_t first, int64_t last) {
  const c10::ParallelGuard alone(true);  // one thread: the others belong to the current step
  try {
    for (int64_t step = first; step < last; ++step) {
      std::vector<TargetBatch> parts = make_(step);
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return leave_ || ready_.size() < kAhead; });
      if (leave_) return;
      ready_.push_back(std::move(parts));
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

std::vector<TargetBatch> Prefetch::next() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || failure_; });
  if (ready_.empty()) std::rethrow_exception(failure_);
  std::vector<TargetBatch> parts = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return parts;
}

}  // namespace horner
