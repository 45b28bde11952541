#include "core/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace horner {
namespace {

constexpr int kSpins =
    1 << 14;  // about 0.2 ms; then the core goes to others, for it may be the only one

// The OpenMP runtime that torch has loaded.
struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags) = nullptr;
  int (*threads)() = nullptr;
  int (*thread)() = nullptr;
};
const OpenMp& open_mp() {
  static const OpenMp found = [] {
    void* loaded = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void* runtime = loaded != nullptr ? loaded : RTLD_DEFAULT;
    OpenMp all;
    all.parallel = reinterpret_cast<decltype(all.parallel)>(dlsym(runtime, "GOMP_parallel"));
    all.threads = reinterpret_cast<decltype(all.threads)>(dlsym(runtime, "omp_get_num_threads"));
    all.thread = reinterpret_cast<decltype(all.thread)>(dlsym(runtime, "omp_get_thread_num"));
    if (all.threads == nullptr || all.thread == nullptr) all.parallel = nullptr;
    return all;
  }();
  return found;
}

// Until `done` is true. The nanoseconds after the spins.
template <class F>
int64_t wait_until(const F& done) {
  for (int spins = 0; spins < kSpins; ++spins) {
    if (done()) return 0;
    _mm_pause();
  }
  const auto begin = std::chrono::steady_clock::now();
  while (!done()) std::this_thread::yield();
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void Barrier::wait() {
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  const int64_t lost = wait_until([&] { return phase_.load(std::memory_order_acquire) != phase; });
  if (lost > 0) lost_.fetch_add(lost, std::memory_order_relaxed);
}

double on_threads(int64_t threads, void (*f)(void*, const Team&), void* context) {
  threads = std::min<int64_t>(threads, at::get_num_threads());
  if (threads <= 1 || at::in_parallel_region() || open_mp().parallel == nullptr)
    return f(context, Team{}), 0;
  // The runtime may give fewer threads than asked for. They meet at the barrier of that many.
  struct Shared {
    void (*f)(void*, const Team&);
    void* context;
    std::atomic<Barrier*> barrier = nullptr;
    std::atomic<int> left = 0;
    double lost = 0;
  } shared{f, context};
  const auto work = [](void* given) {
    Shared& all = *static_cast<Shared*>(given);
    const int own = open_mp().thread(), count = open_mp().threads();
    if (count == 1) return all.f(all.context, Team{});
    if (own == 0) {
      Barrier barrier(count);
      all.barrier.store(&barrier, std::memory_order_release);
      all.f(all.context, Team{own, count, &barrier});
      wait_until([&] { return all.left.load(std::memory_order_acquire) == count - 1; });
      all.lost = barrier.lost();
      return;
    }
    Barrier* barrier = nullptr;
    wait_until([&] { return (barrier = all.barrier.load(std::memory_order_acquire)) != nullptr; });
    all.f(all.context, Team{own, count, barrier});
    all.left.fetch_add(1, std::memory_order_release);
  };
  open_mp().parallel(work, &shared, unsigned(threads), 0);
  return shared.lost;
}

void TeamSize::took(int64_t work, bool alone, double seconds, double lost) {
  if (held_ > 0) {
    --held_;
  } else if (alone) {
    tries_ = false, alone_ = seconds < 0.8 * seconds_;
    held_ = hold_, hold_ = std::min(2 * hold_, kMost);
  } else if (lost > seconds / 2) {
    tries_ = true, work_ = work, seconds_ = seconds;
  } else {
    tries_ = false, hold_ = kFewest;
  }
}

}  // namespace horner
