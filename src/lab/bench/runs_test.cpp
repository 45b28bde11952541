#include "lab/bench/runs.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace horner {
namespace {

TEST(BenchRuns, CountsTheStepsOfItsRuns) {
  BenchRunsOptions o;
  o.task = "mqar:T=16,pairs=2,vocabulary=32";
  o.mixer = {"linear"};
  o.runs = {1};
  o.D = 16;
  o.layers = 1;
  o.B = 4;
  o.steps = 80;
  o.device = "cpu";
  o.folder = testing::TempDir() + "/horner_bench_runs_test";
  const BenchRunsReport report = bench_runs(o, "");
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows[0].failure, "");
  EXPECT_GT(report.rows[0].steps_per_second, 60 / report.rows[0].seconds);
  EXPECT_GT(report.rows[0].seconds, report.rows[0].start);
  EXPECT_FALSE(std::filesystem::exists(o.folder));
}

}  // namespace
}  // namespace horner
