// Work on the threads that torch computes with. This project is built without OpenMP, so at::parallel_for would have one
// thread here, and a second pool of threads would compete with torch's threads for the same cores.
//
//   on_threads(n, [&](Team& team) {
//     for (int64_t i = team.thread; i < rows; i += team.threads) ..;
//     team.wait();                       // until all of them are here
//   });
#pragma once

#include <atomic>
#include <cstdint>

namespace horner {

// Threads wait here for each other. They spin, because a step of decoding has some 200 such places, some 10 us apart.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void wait();
  double lost() const {
    return double(lost_.load()) * 1e-9;
  }  // seconds of all threads together, after they stopped spinning

 private:
  const int threads_;
  std::atomic<int64_t> lost_ = 0;  // ns
  alignas(64) std::atomic<int> arrived_ = 0;
  alignas(64) std::atomic<uint32_t> phase_ = 0;
};

struct Team {
  int thread = 0, threads = 1;
  Barrier* barrier = nullptr;  // null: one thread

  void wait() const {
    if (barrier != nullptr) barrier->wait();
  }
  // This thread's share of n things: begin to end, about equal parts in their order.
  int64_t begin(int64_t n) const { return n * thread / threads; }
  int64_t end(int64_t n) const { return n * (thread + 1) / threads; }
};

// f(context, team) on `threads` threads (at most torch's number), this one among them. f must not throw.
// The seconds that threads waited for a thread that had no core.
double on_threads(int64_t threads, void (*f)(void* context, const Team& team), void* context);

template <class F>
double on_threads(int64_t threads, const F& f) {
  return on_threads(
      threads,
      [](void* context, const Team& team) { (*static_cast<const F*>(context))(team); },
      const_cast<F*>(&f)
  );
}

// How many threads share calls that meet at many barriers. Where other programs take the cores, each barrier waits for a slice of
// time, and one thread alone may be 20 times as fast. So a call that lost half of its time is followed by one on one thread;
// the faster way is kept for some calls.
class TeamSize {
 public:
  bool alone(int64_t work) const { return held_ > 0 ? alone_ : tries_ && work == work_; }
  // A call of so much work took so long.
  void took(int64_t work, bool alone, double seconds, double lost);

 private:
  static constexpr int kFewest = 16, kMost = 256;  // calls
  bool alone_ = false, tries_ = false;
  int held_ = 0, hold_ = kFewest;  // calls that are left, and the number of the next time
  int64_t work_ = 0;
  double seconds_ = 0;  // of the call that lost
};

}  // namespace horner
