// What the worker hands to the thread of a request: events of its texts. Neither waits for the other for long.
//
// A reader that takes nothing while `most` events wait has lost its text: the worker never waits for a client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace horner {

struct TextEvent {
  size_t choice = 0;  // of the request
  Event event;
  // The first event of a choice also says:
  bool first = false;
  int64_t prompt_tokens = 0, cached_tokens = 0;
  std::vector<SampledToken> prompt_scores;
  // The last event of a choice also says:
  int64_t state_bytes = 0;
  std::string error;  // not empty: the text failed; `status` says how
  int status = 500;
};

class TextChannel {
 public:
  explicit TextChannel(size_t most) : most_(most) {}

  // Of the worker. False: nobody reads any more.
  bool push(TextEvent event) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      if (events_.size() >= most_) left_ = true;
      if (left_) return false;
      first = events_.empty();
      events_.push_back(std::move(event));
    }
    if (first) ready_.notify_one();  // with the lock the reader would wake up and wait for it
    return true;
  }
  bool left() const {
    const std::lock_guard lock(mutex_);
    return left_;
  }

  // Of the request: all events that are there. None: no event came in this time.
  std::vector<TextEvent> take(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, wait, [&] { return !events_.empty(); });
    return std::exchange(events_, {});
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }

 private:
  const size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<TextEvent> events_;
  bool left_ = false;
};

}  // namespace horner
