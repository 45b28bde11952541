#include "lab/bench/train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/file.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

// A path is one word, whatever stands in it.
TEST(BenchTrain, RunsAPeerWhosePathHasSpaces) {
  const std::string folder = testing::TempDir() + "/bench train; it's $HOME";
  make_folder(folder);
  const std::string peer = folder + "/python 3";
  write_file(peer, "#!/bin/sh\necho '{\"seconds\": 0.5, \"memory\": 7}'\n");
  fs::permissions(peer, fs::perms::owner_all);
  BenchTrainOptions o;
  o.device = "cpu";
  o.mixer = {"softmax"};
  o.D = {16};
  o.T = o.B = 4;
  o.layers = o.steps = o.rounds = 1;
  o.peer = peer;
  const BenchTrainReport report = bench_train(o);
  fs::remove_all(folder);
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows[0].peer_milliseconds, 500);
  EXPECT_EQ(report.rows[0].peer_memory, 7);
}

// gated_deltanet's layers are larger than softmax's, so fewer of them make a model of the same size.
TEST(BenchTrain, ModelsOfEqualSize) {
  BenchTrainOptions o;
  o.device = "cpu";
  o.mixer = {"softmax", "gated_deltanet"};
  o.D = {64};
  o.T = o.B = 4;
  o.layers = 10;
  o.steps = o.rounds = 1;
  o.equal = true;
  const BenchTrainReport report = bench_train(o);
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_EQ(report.rows[0].layers, 10);
  EXPECT_LT(report.rows[1].layers, 10);
  const double size = double(report.rows[0].parameters);
  EXPECT_NEAR(double(report.rows[1].parameters) / size, 1, 0.5 / 8);  // half a layer of eight
}

// Every part of the step has its time, forward and backward, and little is left over.
TEST(BenchTrain, ProfilesAStepByPart) {
  BenchTrainOptions o;
  o.device = "cpu";
  o.mixer = {"gated_deltanet:conv=4"};
  o.D = {32};
  o.T = 64;
  o.B = 4;
  o.layers = o.steps = o.rounds = 1;
  o.profile = true;
  const StepProfile p = bench_train(o).rows.at(0).profile;
  const auto time = [&](std::string_view part) {
    double ms = 0;
    for (const PartTime& each : p.parts) ms += each.part == part ? each.milliseconds : 0;
    return ms;
  };
  for (const char* part :
       {"projections", "op", "norms", "convolution", "gates", "mlp", "head and loss", "optimiser"})
    EXPECT_GT(time(part), 0) << part;
  EXPECT_LT(time("other"), 0.2 * p.busy());
  const auto has = [&](std::string_view name, std::string_view part) {
    return std::any_of(p.kernels.begin(), p.kernels.end(), [&](const KernelTime& k) {
      return k.part == part && k.name.find(name) != std::string::npos;
    });
  };
  for (const char* part : {"projections", "mlp", "head and loss"})
    EXPECT_TRUE(has("aten::mm", part)) << part;  // of the weights' gradients, in the backward
  EXPECT_TRUE(has("AccumulateGrad", "optimiser"));
}

}  // namespace
}  // namespace horner
