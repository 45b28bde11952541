#include "lab/runs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/check.h"
#include "core/file.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

// A run in this process hands its result over: what lies on the disk is for other processes.
TEST(Runs, KeepTheResultsOfThisProcess) {
  const std::string out = testing::TempDir() + "/horner_runs_test";
  fs::remove_all(out);
  std::vector<TrainOptions> runs(2);
  for (size_t i = 0; i < runs.size(); ++i) {
    TrainOptions& o = runs[i];
    o.task = "copy:G=0,M=3";
    o.out = out;
    o.name = i == 0 ? "first" : "second";
    o.device = "cpu";
    o.model.D = 16;
    o.model.layers = 1;
    o.model.pattern = {"softmax:heads=1"};
    o.schedule.steps = 2;
    o.train.batch = 2;
    o.eval.examples = 4;
    o.log.tensorboard = false;
  }
  const auto outcomes = run_all(runs, 1, "", [&](const RunsTick& tick) {
    if (tick.runs_done == 1) fs::remove(out + "/first/result.json");
  });
  ASSERT_EQ(outcomes.size(), 2u);
  for (const RunOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.failure, "");
    EXPECT_EQ(outcome.result.steps, 2);
  }
  EXPECT_EQ(outcomes[0].result.folder, out + "/first");
  EXPECT_EQ(read_result(out + "/second").json().dump(), outcomes[1].result.json().dump());
  fs::remove_all(out);
}

TEST(Runs, AResultOfAnotherVersionIsNamed) {
  const std::string folder = testing::TempDir() + "/horner_old_result_test";
  make_folder(folder);
  write_file(folder + "/result.json", R"({"folder": "x", "steps": 1})");
  try {
    read_result(folder);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        folder + "/result.json: was written by another version, or not by horner train"
    );
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace horner
