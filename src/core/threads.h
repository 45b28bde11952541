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

 private:
  const int threads_;
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
void on_threads(int64_t threads, void (*f)(void* context, const Team& team), void* context);

template <class F>
void on_threads(int64_t threads, const F& f) {
  on_threads(
      threads,
      [](void* context, const Team& team) { (*static_cast<const F*>(context))(team); },
      const_cast<F*>(&f)
  );
}

}  // namespace horner
