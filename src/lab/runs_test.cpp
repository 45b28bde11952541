#include "lab/runs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "io/safetensors.h"

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

// Runs that share a GPU and a process have the bits of runs alone.
TEST(RunsCuda, ShareAGpuWithoutAnInfluence) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const std::string out = testing::TempDir() + "/horner_runs_cuda_test";
  fs::remove_all(out);
  const auto runs = [&](const std::string& where) {
    std::vector<TrainOptions> list;
    for (const char* mixer : {"softmax", "linear", "gla", "deltanet", "taylor", "mamba2"}) {
      TrainOptions o;
      o.task = "mqar:T=64,pairs=8,vocabulary=128,test=64";
      o.out = out + "/" + where;
      o.name = mixer;
      o.device = "cuda";
      o.seed = int64_t(list.size());
      o.model.pattern = {mixer};
      o.schedule.steps = 60;
      o.train.batch = 16;
      o.eval.every = 25;
      o.checkpoint.every = 20;
      o.log.tensorboard = false;
      list.push_back(o);
    }
    return list;
  };
  const auto together = run_all(runs("together"), 3, "", {});
  const auto alone = run_all(runs("alone"), 1, "", {});
  for (size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(together[i].failure, "");
    ASSERT_EQ(alone[i].failure, "");
    EXPECT_EQ(together[i].result.test.values, alone[i].result.test.values)
        << alone[i].result.folder;
    const std::string file = "/checkpoints/step_00000060/model.safetensors";
    const Safetensors x = Safetensors::open(together[i].result.folder + file);
    const Safetensors y = Safetensors::open(alone[i].result.folder + file);
    double most = 0;
    for (const std::string& name : y.names())
      most = std::max(most, (x.get(name) - y.get(name)).abs().max().item<double>());
    EXPECT_EQ(most, 0) << alone[i].result.folder;
  }
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
    EXPECT_TRUE(
        std::string(error.what())
            .starts_with(folder + "/result.json: is damaged, or was written by another version")
    ) << error.what();
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace horner
