#include "lab/bench/train.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace horner
