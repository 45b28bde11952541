// Every file in configs/ is read, and its task and its model can be made.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/check.h"
#include "tasks/task.h"
#include "train/resolve.h"

namespace horner {
namespace {

TEST(Configs, MakeTheirTaskAndModel) {
  int64_t files = 0;
  std::string absent;  // those whose data is not here
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    SCOPED_TRACE(entry.path().string());
    ++files;
    TrainOptions options;
    ASSERT_NO_THROW(from_toml_file(options, entry.path().string()));
    std::shared_ptr<Task> task;
    try {
      task = make_task(options.task);
    } catch (const DataError& error) {
      absent += fmt::format("{}: {}; ", entry.path().string(), error.what());
      continue;
    }
    EXPECT_NO_THROW(resolve(options, *task));  // its expectations too
    const TaskShape shape = task->shape();
    ModelOptions model = options.model;
    if (shape.vocabulary > 0) model.vocabulary = shape.vocabulary;
    model.classes = shape.classes;
    EXPECT_NO_THROW(Model{model});
    const Batch batch = task->batch(Split::train, {0});
    const int64_t trained = (batch.tokens.defined() ? batch.tokens : batch.features).size(1);
    EXPECT_TRUE(model.positions == 0 || model.positions >= trained);
    for (const int64_t length : options.eval.lengths) {
      ASSERT_NE(task->at_length(length), nullptr);
      EXPECT_TRUE(model.positions == 0 || model.positions >= length);
    }
  }
  EXPECT_GE(files, 10);
  if (!absent.empty()) GTEST_SKIP() << absent;
}

}  // namespace
}  // namespace horner
