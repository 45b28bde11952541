#include "train/prefetch.h"

#include <c10/util/ParallelGuard.h>

namespace horner {

Prefetch::Prefetch(
    int64_t first,
    int64_t last,
    std::function<std::vector<TargetBatch>(int64_t)> make,
    int64_t threads
)
    : make_(std::move(make)), last_(last), ahead_(kAhead * threads), asked_(first), taken_(first) {
  for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Prefetch::~Prefetch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leave_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Prefetch::work() {
  const c10::ParallelGuard alone(true);  // one core: the others belong to the current step
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return leave_ || asked_ == last_ || asked_ < taken_ + ahead_; });
    if (leave_ || asked_ == last_) return;
    const int64_t step = asked_++;
    lock.unlock();
    std::vector<TargetBatch> parts;
    std::exception_ptr failure;
    try {
      parts = make_(step);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failures_[step] = failure;
    } else {
      ready_[step] = std::move(parts);
    }
    changed_.notify_all();
    if (failure) return;
  }
}

std::vector<TargetBatch> Prefetch::next() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return ready_.contains(taken_) || failures_.contains(taken_); });
  if (failures_.contains(taken_)) std::rethrow_exception(failures_[taken_]);
  std::vector<TargetBatch> parts = std::move(ready_[taken_]);
  ready_.erase(taken_++);
  changed_.notify_all();
  return parts;
}

}  // namespace horner
