// Runs that learn something, in less than a minute.
#include <gtest/gtest.h>

#include <filesystem>

#include "train/train.h"

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

}  // namespace
}  // namespace horner
