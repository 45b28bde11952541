// Whether the other processes of a run are alive. Each writes a number into the store every few seconds and reads those of the
// others. A process whose number stands still for 40 seconds is gone or stalled: the waiting ones print a line that names it
// and exit with code 1. They do it from threads of their own, because the main thread may wait inside a collective call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace horner {

class Heartbeat {
 public:
  // `store`: a connection of its own.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t world);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  ~Heartbeat();

 private:
  struct Other {
    std::vector<uint8_t> beat;
    int silent = 0;  // own beats since the last new one
  };
  void run();  // beats
  void watch(
  );  // ends the program when a beat takes too long: the store's calls may block for ever
  void beat(int64_t count);
  bool stopped_within(std::chrono::seconds time);  // or the time is over

  const c10::intrusive_ptr<c10d::Store> store_;
  const int64_t rank_;
  std::vector<Other> others_;  // by rank
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::atomic<int64_t> beats_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread beats_thread_, watch_thread_;
};

}  // namespace horner
