#include "train/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

namespace horner {
namespace {

std::vector<TargetBatch> numbered(int64_t step) {
  TargetBatch batch;
  batch.count = step;
  return {batch};
}

TEST(Prefetch, HandsOutStepsInOrder) {
  for (const int64_t threads : {1, 4}) {
    std::atomic<int64_t> made = 0;
    Prefetch data(
        5,
        60,
        [&](int64_t step) {
          if (step % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          ++made;
          return numbered(step);
        },
        threads
    );
    for (int64_t step = 5; step < 60; ++step) {
      EXPECT_EQ(data.next().at(0).count, step);
      EXPECT_LE(made, step - 5 + 1 + 2 * threads);  // not further ahead
    }
    EXPECT_EQ(made, 55);
  }
}

TEST(Prefetch, ThrowsAtTheStepThatFailed) {
  struct Broken : std::exception {};
  Prefetch data(
      0,
      100,
      [](int64_t step) {
        if (step == 9) throw Broken();
        return numbered(step);
      },
      3
  );
  for (int64_t step = 0; step < 9; ++step) EXPECT_EQ(data.next().at(0).count, step);
  EXPECT_THROW(data.next(), Broken);
}

}  // namespace
}  // namespace horner
