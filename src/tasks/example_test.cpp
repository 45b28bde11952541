// What a page says about a task.
#include "tasks/example.h"

#include <gtest/gtest.h>

#include "tasks/text/text.h"

namespace horner {
namespace {

TEST(TaskExample, RecallShowsPairsAndAnswers) {
  const auto task = make_task("mqar:T=16,pairs=2,vocabulary=64");
  const Json example = example_of(*task);
  const Batch batch = task->batch(Split::test, {0});
  ASSERT_EQ(example["tokens"].size(), 16u);
  int64_t answers = 0;
  for (int64_t t = 0; t < 16; ++t) {
    EXPECT_EQ(example["tokens"][t], std::to_string(batch.tokens[0][t].item<int64_t>()));
    const int64_t target = batch.targets[0][t].item<int64_t>();
    EXPECT_EQ(example["answers"][t].is_null(), target == kNoTarget);
    if (target == kNoTarget) continue;
    ++answers;
    EXPECT_EQ(example["answers"][t], std::to_string(target));
    // The key stood before its answer at the start.
    const bool first = example["tokens"][0] == example["tokens"][t];
    EXPECT_EQ(example["tokens"][first ? 1 : 3], example["answers"][t]);
  }
  EXPECT_EQ(answers, 2);
}

TEST(TaskExample, TextAsksForTheNextByte) {
  const auto task = make_task("byte:data=grammar,T=32");
  const Json example = example_of(*task);
  EXPECT_TRUE(example["next"].get<bool>());
  EXPECT_FALSE(example.contains("answers"));
  const auto& text = dynamic_cast<const TextTask&>(*task);
  EXPECT_EQ(text.token_text('a'), "a");
  EXPECT_EQ(text.token_text('\n'), "\u23ce");
  EXPECT_EQ(text.token_text(0xC3), "\\xc3");
  EXPECT_EQ(text.token_text(256), "\u2022");  // the end of a document
}

TEST(TaskExample, EveryTaskWithoutDataIsDescribed) {
  for (const TaskType& type : tasks()) {
    std::shared_ptr<Task> task;
    try {
      task = make_task(std::string(type.name));
    } catch (const std::exception&) {
      continue;  // it needs data
    }
    const Json told = describe_task(*task, std::string(type.name));
    EXPECT_EQ(told["T"], task->shape().T) << type.name;
    EXPECT_EQ(baselines_in(told).size(), task->baselines().size()) << type.name;
    EXPECT_EQ(told["example"].is_null(), task->shape().features > 0) << type.name;
    EXPECT_NO_THROW(told.dump()) << type.name;
  }
}

}  // namespace
}  // namespace horner
