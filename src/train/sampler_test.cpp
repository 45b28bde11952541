#include "train/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace horner {
namespace {

TEST(Sampler, EndlessDataIsCounted) {
  const auto task = make_task("mqar:T=16,pairs=2,vocabulary=32");
  Sampler sampler(*task, 4);
  EXPECT_EQ(sampler.at(0), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(sampler.at(7), (std::vector<int64_t>{28, 29, 30, 31}));
}

TEST(Sampler, AnEpochVisitsEverySegmentInOrderAndEveryExampleOnce) {
  const auto task = make_task("mqar:T=16;32,pairs=2;4,vocabulary=64,train=10;7");
  Sampler sampler(*task, 4);
  ASSERT_EQ(sampler.steps_of_epoch(), 3 + 2);
  std::vector<std::vector<int64_t>> epochs(2);
  for (int64_t step = 0; step < 10; ++step) {
    const auto indices = sampler.at(step);
    const bool first = step % 5 < 3;
    for (const int64_t index : indices) EXPECT_EQ(index < 10, first) << step;
    auto& epoch = epochs[size_t(step / 5)];
    epoch.insert(epoch.end(), indices.begin(), indices.end());
    EXPECT_NO_THROW(task->batch(Split::train, indices));
  }
  for (const auto& epoch : epochs)
    EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 17);
  EXPECT_NE(epochs[0], epochs[1]);
  Sampler again(*task, 4);  // any step, without those before it
  for (const int64_t step : {8, 2, 9, 0}) EXPECT_EQ(again.at(step), sampler.at(step)) << step;
}

TEST(Sampler, SharesOfProcessesAreTheWhole) {
  const std::vector<int64_t> all = {5, 3, 9, 1, 7};
  for (const int64_t world : {1, 2, 3, 5, 8}) {
    std::vector<int64_t> together;
    for (int64_t rank = 0; rank < world; ++rank) {
      const auto own = share_of(all, rank, world);
      EXPECT_LE(std::abs(int64_t(own.size()) * world - 5), world);
      together.insert(together.end(), own.begin(), own.end());
    }
    EXPECT_EQ(together, all);
  }
}

TEST(Sampler, EvaluationTakesOfEverySegment) {
  const auto task = make_task("mqar:T=16;32,pairs=2;4,vocabulary=64,train=10,test=20");
  int64_t total = 0;
  for (const auto& indices : batches_of(*task, Split::test, 12, 4)) {
    EXPECT_NO_THROW(task->batch(Split::test, indices));
    total += int64_t(indices.size());
  }
  EXPECT_EQ(total, 12);
  EXPECT_EQ(batches_of(*task, Split::test, 0, 20).size(), 2);
}

}  // namespace
}  // namespace horner
