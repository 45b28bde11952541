#include "core/threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "core/huge_memory.h"

namespace horner {
namespace {

TEST(Threads, EachThreadHasItsShareAndWaitsForTheOthers) {
  constexpr int64_t kItems = 1001;
  std::vector<int64_t> x(kItems), y(kItems);
  on_threads(at::get_num_threads(), [&](const Team& team) {
    for (int64_t round = 1; round <= 200; ++round) {
      for (int64_t i = team.begin(kItems); i < team.end(kItems); ++i) x[size_t(i)] += round;
      team.wait();
      for (int64_t i = team.begin(kItems); i < team.end(kItems); ++i)  // of another thread's share
        y[size_t(i)] += x[size_t(kItems - 1 - i)];
      team.wait();
    }
  });
  int64_t sum = 0, expected = 0;
  for (int64_t round = 1; round <= 200; ++round) sum += round, expected += sum;
  for (int64_t i = 0; i < kItems; ++i) ASSERT_EQ(y[size_t(i)], expected) << i;
}

TEST(Threads, SharesCoverEverythingOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const int64_t n : {0, 1, 5, 100}) {
      int64_t next = 0;
      for (int i = 0; i < threads; ++i) {
        const Team team{i, threads, nullptr};
        EXPECT_EQ(team.begin(n), next);
        next = team.end(n);
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(Threads, OneThreadIsTheCaller) {
  int calls = 0;
  on_threads(1, [&](const Team& team) {
    team.wait();
    EXPECT_EQ(team.threads, 1);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

// A barrier at which one thread comes late.
TEST(Threads, TimeThatIsLostIsCounted) {
  if (at::get_num_threads() < 2) GTEST_SKIP() << "one thread";
  const auto lost = [](int ms) {
    return on_threads(2, [&](const Team& team) {
      if (team.thread == 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
      team.wait();
    });
  };
  EXPECT_GT(lost(100), 0.05);
  EXPECT_EQ(on_threads(1, [](const Team& team) { team.wait(); }), 0);
}

TEST(TeamSize, TakesWhatIsFaster) {
  TeamSize size;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(size.alone(1));
    size.took(1, false, 1, 0.4);  // nothing is lost
  }
  size.took(1, false, 1, 0.9);
  EXPECT_FALSE(size.alone(7));  // other work tells nothing
  EXPECT_TRUE(size.alone(1));
  size.took(1, true, 0.1, 0);
  int calls = 0;  // as long as it holds
  for (; size.alone(1) && calls < 1000; ++calls) size.took(1, true, 0.1, 0);
  EXPECT_EQ(calls, 16);
  size.took(1, false, 1, 0.9);
  EXPECT_TRUE(size.alone(1));
  size.took(1, true, 0.9, 0);  // no faster
  for (calls = 0; !size.alone(1) && calls < 1000; ++calls) size.took(1, false, 1, 0.9);
  EXPECT_EQ(calls, 32 + 1);
}

TEST(HugeMemory, PiecesAreAlignedZeroAndApart) {
  HugeArena arena;
  std::vector<std::shared_ptr<std::byte>> pieces;
  const size_t sizes[] = {1, 100, 4096, size_t(33) << 20, 64, 7};
  for (const size_t size : sizes) {
    pieces.push_back(arena.take(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces.back().get()) % 64, 0U);
    for (size_t i = 0; i < size; i += 61) ASSERT_EQ(pieces.back().get()[i], std::byte(0));
    std::fill_n(pieces.back().get(), size, std::byte(pieces.size()));
  }
  for (size_t k = 0; k < pieces.size(); ++k)
    EXPECT_EQ(pieces[k].get()[sizes[k] - 1], std::byte(k + 1));
}

}  // namespace
}  // namespace horner
