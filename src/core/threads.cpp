#include "core/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <immintrin.h>

#include <algorithm>
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

}  // namespace

void Barrier::wait() {
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; phase_.load(std::memory_order_acquire) == phase;) {
    if (spins < kSpins) {
      ++spins;
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void on_threads(int64_t threads, void (*f)(void*, const Team&), void* context) {
  threads = std::min<int64_t>(threads, at::get_num_threads());
  if (threads <= 1 || at::in_parallel_region() || open_mp().parallel == nullptr)
    return f(context, Team{});
  // The runtime may give fewer threads than asked for. They meet at the barrier of that many.
  struct Shared {
    void (*f)(void*, const Team&);
    void* context;
    std::atomic<Barrier*> barrier = nullptr;
    std::atomic<int> left = 0;
  } shared{f, context};
  const auto work = [](void* given) {
    Shared& all = *static_cast<Shared*>(given);
    const int own = open_mp().thread(), count = open_mp().threads();
    if (count == 1) return all.f(all.context, Team{});
    if (own == 0) {
      Barrier barrier(count);
      all.barrier.store(&barrier, std::memory_order_release);
      all.f(all.context, Team{own, count, &barrier});
      while (all.left.load(std::memory_order_acquire) < count - 1) _mm_pause();
      return;
    }
    Barrier* barrier = nullptr;
    while ((barrier = all.barrier.load(std::memory_order_acquire)) == nullptr) _mm_pause();
    all.f(all.context, Team{own, count, barrier});
    all.left.fetch_add(1, std::memory_order_release);
  };
  open_mp().parallel(work, &shared, unsigned(threads), 0);
}

}  // namespace horner
