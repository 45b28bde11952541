// Properties of every task on the list, and the check values of their specifications.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"
#include "tasks/rows_test.h"

namespace horner {
namespace {

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

// Own figures of the specification, by exact computation there.
TEST(Mqar, EarlyQuestionsAreLikelier) {
  struct Case {
    const char* task;
    int64_t n;
    double expected;
  };
  const Case cases[] = {
      {"mqar:T=64,pairs=4,vocabulary=128", 20000, 0.251},
      {"mqar:T=256,pairs=16,vocabulary=512", 10000, 0.185},
      {"mqar:T=1024,pairs=256,vocabulary=2048", 3000, 0.159}};
  for (const Case& c : cases) {
    const auto task = make_task(c.task);
    const Batch batch = task->batch(Split::train, first(c.n));
    const int64_t P = batch.slices.at("num_kv_pairs")[0].item<int64_t>();
    const at::Tensor asked = batch.tokens.select(1, 2 * P) == batch.tokens.select(1, 0);
    const double share = asked.to(at::kDouble).mean().item<double>();
    const double sigma = std::sqrt(c.expected * (1 - c.expected) / double(c.n));
    EXPECT_NEAR(share, c.expected, 4 * sigma) << c.task;
  }
}

TEST(Task, ListRefusesWhatItSays) {
  for (const TaskType& type : tasks()) {
    for (const std::string& settings : type.refused) {
      EXPECT_THROW(type.make(type.parse(settings)), UsageError) << type.name << " " << settings;
    }
  }
}

// Sizes are checked before anything is made: no table, no file.
TEST(Task, NoNumberIsBeyondTheBound) {
  for (const TaskType& type : tasks()) {
    for (const Description& d : type.describe()) {
      const bool whole = d.type.find("int") != std::string::npos && d.name != "seed";
      for (const char* value : {"1000000000", "1000000000000000", "-1000000000000000"}) {
        if (!whole) continue;
        const std::string text = fmt::format("{}:{}={}", type.name, d.name, value);
        EXPECT_THROW(make_task(text), UsageError) << text;
      }
    }
  }
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || at::equal(a, b));
}

constexpr at::Tensor Batch::*kParts[] = {
    &Batch::tokens,
    &Batch::features,
    &Batch::targets,
    &Batch::values,
    &Batch::labels,
    &Batch::lengths};

// NaN equals NaN.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() && a.is_floating_point()) {
    return b.defined() && same(a.view(at::kInt), b.view(at::kInt));
  }
  return same(a, b);
}

// Every variant of every task.
template <class Check>
void each_variant(Check check) {
  for (const TaskType& type : tasks()) {
    for (const std::string& settings : type.variants) {
      SCOPED_TRACE(fmt::format("{}:{}", type.name, settings));
      check(*type.make(type.parse(settings)));
    }
  }
}

TEST(Task, AnExampleDependsOnItsIndexAlone) {
  each_variant([](const Task& task) {
    for (const Split split : {Split::train, Split::valid, Split::test}) {
      const Batch together = task.batch(split, first(12));
      const Batch alone = task.batch(split, {7});
      for (const auto part : kParts) {
        const at::Tensor& all = together.*part;
        EXPECT_TRUE(same_bits(all.defined() ? all.narrow(0, 7, 1) : all, alone.*part));
      }
      for (const auto& [name, slice] : together.slices) {
        EXPECT_TRUE(same(slice.narrow(0, 7, 1), alone.slices.at(name)));
      }
    }
  });
}

TEST(Task, AnyNumberOfThreadsGivesTheSameBits) {
  const int threads = at::get_num_threads();
  each_variant([](const Task& task) {
    at::set_num_threads(1);
    const Batch one = task.batch(Split::train, first(20));
    at::set_num_threads(3);
    const Batch three = task.batch(Split::train, first(20));
    for (const auto part : kParts) EXPECT_TRUE(same_bits(one.*part, three.*part));
  });
  at::set_num_threads(threads);
}

TEST(Task, SplitsAndSeedsDiffer) {
  for (const TaskType& type : tasks()) {
    for (const std::string& settings : type.variants) {
      const auto inputs = [&](const Task& task, Split split) {
        const Batch batch = task.batch(split, first(16));
        return batch.tokens.defined() ? batch.tokens : batch.features;
      };
      Json json = type.parse(settings);
      if (!json.contains("seed")) continue;
      const auto task = type.make(json);
      json["seed"] = json["seed"].get<int64_t>() + 1;
      const auto other = type.make(json);
      const at::Tensor train = inputs(*task, Split::train);
      EXPECT_FALSE(same(train, inputs(*other, Split::train))) << type.name << ":" << settings;
      EXPECT_FALSE(same(inputs(*task, Split::valid), inputs(*task, Split::test)))
          << type.name << ":" << settings;
    }
  }
}

TEST(Task, BatchesHaveTheSaidShape) {
  each_variant([](const Task& task) {
    const TaskShape shape = task.shape();
    for (const Split split : {Split::train, Split::valid, Split::test}) {
      const Batch batch = task.batch(split, first(12));
      const at::Tensor& input = shape.features > 0 ? batch.features : batch.tokens;
      ASSERT_TRUE(input.defined());
      EXPECT_EQ(input.size(0), 12);
      EXPECT_LE(input.size(1), shape.T);
      EXPECT_EQ(shape.features > 0 ? batch.features.size(2) : 0, shape.features);
      if (batch.tokens.defined()) {
        EXPECT_GE(batch.tokens.min().item<int64_t>(), 0);
        EXPECT_LT(batch.tokens.max().item<int64_t>(), shape.vocabulary);
      }
      EXPECT_EQ(batch.labels.defined(), shape.classes > 0);
      EXPECT_EQ(batch.values.defined(), shape.regression);
      EXPECT_EQ(batch.targets.defined(), shape.classes == 0 && !shape.regression);
      if (batch.labels.defined()) {
        EXPECT_GE(batch.labels.min().item<int64_t>(), 0);
        EXPECT_LT(batch.labels.max().item<int64_t>(), shape.classes);
      }
      if (batch.targets.defined()) {
        const at::Tensor counted = batch.targets.masked_select(batch.targets != kNoTarget);
        EXPECT_TRUE((batch.targets != kNoTarget).any(1).all().item<bool>());  // something counts
        EXPECT_GE(counted.min().item<int64_t>(), 0);
        EXPECT_LT(counted.max().item<int64_t>(), shape.vocabulary);
      }
      if (batch.lengths.defined()) {
        const at::Tensor after = at::arange(input.size(1)) >= batch.lengths.unsqueeze(1);
        const at::Tensor mask = input.dim() == 3 ? after.unsqueeze(2) : after;
        EXPECT_EQ(input.masked_select(mask).count_nonzero().item<int64_t>(), 0);
        if (batch.targets.defined()) {
          const at::Tensor beyond = batch.targets.masked_select(after);
          EXPECT_TRUE((beyond == kNoTarget).all().item<bool>());
        }
      }
    }
  });
}

TEST(Task, OptionsSurvive) {
  for (const TaskType& type : tasks()) {
    for (const std::string& settings : type.variants) {
      const auto task = type.make(type.parse(settings));
      const auto again = type.make(task->options());
      EXPECT_EQ(task->options(), again->options()) << type.name << ":" << settings;
      EXPECT_TRUE(same(task->batch(Split::test, {3}).tokens, again->batch(Split::test, {3}).tokens))
          << type.name << ":" << settings;
    }
  }
}

TEST(Task, RefusesExamplesThatAreNotThere) {
  each_variant([](const Task& task) {
    EXPECT_THROW(task.batch(Split::test, {task.size(Split::test)}), UsageError);
    EXPECT_THROW(task.batch(Split::test, {-1}), UsageError);
    EXPECT_THROW(task.batch(Split::test, {}), UsageError);
  });
}

TEST(Task, OtherLengths) {
  int64_t with_lengths = 0;
  for (const TaskType& type : tasks()) {
    if (type.variants.empty()) continue;
    const auto task = type.make(type.parse(type.variants[0])), longer = task->at_length(128);
    if (longer == nullptr) continue;
    ++with_lengths;
    const Batch batch = longer->batch(Split::test, first(4));
    EXPECT_EQ((batch.tokens.defined() ? batch.tokens : batch.features).size(1), 128) << type.name;
    EXPECT_EQ(longer->shape().vocabulary, task->shape().vocabulary) << type.name;
  }
  EXPECT_GT(with_lengths, 12);
}

TEST(TaskSlow, BaselinesAreScores) {
  each_variant([](const Task& task) {
    const auto baselines = task.baselines();
    EXPECT_FALSE(baselines.empty());
    for (const Baseline& baseline : baselines) {
      EXPECT_GE(baseline.score, 0) << baseline.name;
      EXPECT_TRUE(!task.metric().ends_with("accuracy") || baseline.score <= 1) << baseline.name;
      EXPECT_FALSE(baseline.meaning.empty()) << baseline.name;
    }
  });
}

}  // namespace
}  // namespace horner
