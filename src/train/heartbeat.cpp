#include "train/heartbeat.h"

#include <fmt/format.h>
#include <unistd.h>

namespace horner {
namespace {

constexpr std::chrono::seconds kPause(5);
constexpr int kSilent = 8;  // beats: 40 seconds

std::string key(int64_t rank) { return fmt::format("beat/{}", rank); }

[[noreturn]] void end(const std::string& reason) {
  const std::string line =
      fmt::format("horner: {}; start the run again, it goes on from the last checkpoint\n", reason);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(1);
}

std::string no_store(int64_t rank) {
  return fmt::format(
      "process {}: the store of the run does not answer; process 0 or torchrun, which keeps it, is "
      "gone or stalled",
      rank
  );
}

}  // namespace

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t world)
    : store_(std::move(store)),
      rank_(rank),
      others_(size_t(world)),
      beats_thread_([this] { run(); }),
      watch_thread_([this] { watch(); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  beats_thread_.join();
  ended_ = true;
  watch_thread_.join();
}

bool Heartbeat::stopped_within(std::chrono::seconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return stop_; });
}

void Heartbeat::run() {
  for (int64_t count = 0;; ++count) {
    try {
      beat(count);
    } catch (const std::exception&) {
      // The main thread may know better what happened, or may be at its end.
      if (stopped_within(kPause)) return;
      end(no_store(rank_));
    }
    ++beats_;
    if (stopped_within(kPause)) return;
  }
}

void Heartbeat::watch() {
  int64_t seen = -1;
  for (int silent = 0; !ended_;) {
    for (int i = 0; i < 50 && !ended_; ++i)
      std::this_thread::sleep_for(
          std::chrono::duration_cast<std::chrono::milliseconds>(kPause) / 50
      );
    silent = beats_ == seen ? silent + 1 : 0;
    seen = beats_;
    if (silent >= kSilent) end(no_store(rank_));
  }
}

// Silence is counted in own beats, not in seconds: where all processes were suspended, none was silent.
void Heartbeat::beat(int64_t count) {
  store_->set(key(rank_), std::to_string(count));
  for (size_t rank = 0; rank < others_.size(); ++rank) {
    if (int64_t(rank) == rank_) continue;
    Other& other = others_[rank];
    const auto now = store_->check({key(int64_t(rank))}) ? store_->get(key(int64_t(rank)))
                                                         : std::vector<uint8_t>{};
    other.silent = now == other.beat ? other.silent + 1 : 0;
    other.beat = now;
    if (other.silent >= kSilent)
      end(fmt::format(
          "process {}: process {} of the run has not been heard of for {} seconds, it is gone or "
          "stalled",
          rank_,
          rank,
          kSilent * kPause.count()
      ));
  }
}

}  // namespace horner
