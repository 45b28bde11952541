// Properties of every task on the list, and the check values of their specifications.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "tasks/task.h"

namespace horner {
namespace {

std::vector<int64_t> numbers(const at::Tensor& row) {
  const at::Tensor flat = row.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

// The specification's example: seed 0, train, index 0.
TEST(Mqar, KnownExample) {
  const auto task = make_task("mqar:T=20,pairs=3,vocabulary=64,seed=0");
  const Batch batch = task->batch(Split::train, {0});
  const std::vector<int64_t> tokens = {13, 51, 28, 63, 24, 44, 13, 0, 0,  0,
                                       0,  0,  24, 0,  0,  0,  0,  0, 28, 0};
  EXPECT_EQ(numbers(batch.tokens[0]), tokens);
  const auto targets = numbers(batch.targets[0]);
  EXPECT_EQ(targets[6], 51);
  EXPECT_EQ(targets[12], 44);
  EXPECT_EQ(targets[18], 63);
}

TEST(Task, ListRefusesWhatItSays) {
  for (const TaskType& type : tasks()) {
    for (const std::string& settings : type.refused) {
      EXPECT_THROW(type.make(type.parse(settings)), UsageError) << type.name << " " << settings;
    }
  }
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || at::equal(a, b));
}

TEST(Task, AnExampleDependsOnItsIndexAlone) {
  for (const TaskType& type : tasks()) {
    for (const std::string& settings : type.variants) {
      const auto task = type.make(type.parse(settings));
      const Batch together = task->batch(Split::train, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
      const Batch alone = task->batch(Split::train, {7});
      for (auto part : {&Batch::tokens, &Batch::features, &Batch::targets, &Batch::labels}) {
        const at::Tensor& all = together.*part;
        EXPECT_TRUE(same(all.defined() ? all.narrow(0, 7, 1) : all, alone.*part))
            << type.name << " " << settings;
      }
    }
  }
}

}  // namespace
}  // namespace horner
