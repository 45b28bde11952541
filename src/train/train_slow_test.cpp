// Runs that learn something, in a minute or two.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/check.h"
#include "tasks/task.h"
#include "train/expect.h"

namespace horner {
namespace {

// Protocol A of Zoology at its smallest: T = 64, 4 pairs, D = 64, mixers alone. Exact recall is a
// matter of minutes for plain attention on a CPU; a short convolution brings it forward.
TEST(TrainSlow, SoftmaxRecallsFourPairs) {
  const std::string out = testing::TempDir() + "horner_train_slow";
  std::filesystem::remove_all(out);
  TrainOptions o;
  o.task = "mqar:T=64,pairs=4,vocabulary=128,test=500";
  o.out = out;
  o.device = "cpu";
  o.model.pattern = {"softmax:heads=1,conv=4"};
  o.model.mlp = "none";
  o.optim.lr = 1e-2;
  o.schedule.steps = 400;
  o.schedule.warmup = 20;
  o.eval.every = 50;
  o.checkpoint.every = 0;
  o.train.target = 0.99;
  const TrainResult r = train(o);
  EXPECT_GE(r.test.values.at("accuracy"), 0.99);
  std::filesystem::remove_all(out);
}

// Two minutes of one core: what nanoGPT's README gives for its small model.
TEST(TrainSlow, ShakespeareOfFourLayersGivesTheKnownLoss) {
  TrainOptions o;
  from_toml_file(o, "configs/shakespeare_4.toml");
  try {
    make_task(o.task);
  } catch (const DataError& error) {
    GTEST_SKIP() << error.what();
  }
  o.out = testing::TempDir() + "horner_shakespeare";
  std::filesystem::remove_all(o.out);
  ASSERT_FALSE(o.expect.empty());
  for (const Answer& answer : answers(train(o)))
    EXPECT_TRUE(answer.holds) << answer.expected << ": " << answer.measured;
  std::filesystem::remove_all(o.out);
}

}  // namespace
}  // namespace horner
