#include "train/step.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "core/device.h"
#include "train/resolve.h"
#include "train/run_folder.h"
#include "train/sampler.h"
#include "train/schedule.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

TrainOptions small(const std::string& mixer, const std::string& device) {
  TrainOptions o;
  o.task = "mqar:T=64,pairs=8,vocabulary=128";
  o.device = device;
  o.model.D = 64;
  o.model.pattern = {mixer};
  o.schedule.steps = 200;
  o.schedule.warmup = 5;
  o.optim.lr = 3e-3;
  o.train.batch = 8;
  return o;
}

// A run without folders.
struct Training {
  explicit Training(const TrainOptions& options)
      : task(make_task(options.task)),
        o(resolve(options, *task)),
        device(find_device(o.device)),
        stream(device),
        model(make_model(o.model, 0)),
        sampler(*task, o.train.batch) {
    model->to(device);
    optimizer = std::make_unique<Optimizer>(*model, o.optim);
    step = std::make_unique<Step>(*model, *optimizer, o, device);
  }
  TargetBatch batch(int64_t s) {
    return made_there ? training_batch(*task, sampler.at(s), device)
                      : find_targets(task->batch(Split::train, sampler.at(s)));
  }
  void steps(int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) {
      const TargetBatch b = batch(s);
      step->run({b}, double(b.count));
    }
  }
  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all;
    for (const Optimizer::Group& group : optimizer->groups())
      for (const at::Tensor& x : {group.weights, group.mean, group.square})
        all.push_back(x.to(at::kCPU).clone());
    return all;
  }

  std::shared_ptr<Task> task;
  TrainOptions o;
  at::Device device;
  OwnStream stream;
  std::shared_ptr<Model> model;
  Sampler sampler;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Step> step;
  bool made_there = false;  // batches are made on the device if it can
};

void expect_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(at::equal(a[i], b[i]))
        << "vector " << i << " of weights, mean, square; differs by " << (a[i] - b[i]).abs().max();
}

TEST(Step, IsBackwardClippingAndAdamW) {
  Training run(small("linear:heads=2", "cpu")), plain(small("linear:heads=2", "cpu"));
  run.steps(0, 8);
  const std::vector<Step::Numbers> numbers = run.step->read(true);
  ASSERT_EQ(numbers.size(), 8u);
  for (int64_t s = 0; s < 8; ++s) {
    const TargetBatch b = plain.batch(s);
    plain.optimizer->zero_gradients();
    const at::Tensor loss = losses(*plain.model, b).each.sum();
    torch::autograd::backward({loss * (1 / double(b.count))}, {});
    const double lr = plain.o.optim.lr * schedule_share(plain.o.schedule, s);
    const at::Tensor norm = plain.optimizer->step(lr);
    const Step::Numbers& n = numbers[size_t(s)];
    EXPECT_EQ(n.step, s);
    EXPECT_EQ(n.loss, loss.item<double>());
    EXPECT_EQ(n.norm, norm.item<double>());
    EXPECT_EQ(n.lr, lr);
    EXPECT_EQ(n.count, double(b.count));
  }
  expect_same_bits(run.weights(), plain.weights());
}

// More steps than the device holds numbers of: none is lost, in order.
TEST(Step, NumbersCanBeReadLate) {
  TrainOptions o = small("linear:heads=2", "cpu");
  o.task = "mqar:T=8,pairs=1,vocabulary=16";
  o.model.D = 8;
  Training late(o), at_once(o);
  late.steps(0, 150);
  const std::vector<Step::Numbers> all = late.step->read(true);
  ASSERT_EQ(all.size(), 150u);
  for (int64_t s = 0; s < 150; ++s) {
    at_once.steps(s, s + 1);
    const std::vector<Step::Numbers> one = at_once.step->read(true);
    ASSERT_EQ(one.size(), 1u);
    EXPECT_EQ(all[size_t(s)].step, s);
    EXPECT_EQ(all[size_t(s)].loss, one[0].loss);
    EXPECT_EQ(all[size_t(s)].norm, one[0].norm);
  }
}

// A block that is computed again must not leave its rounded weights to the next step.
TEST(Step, RecomputedBlocksReadTheWeightsOfTheirStep) {
  TrainOptions o = small("linear:heads=2", "cpu");
  o.train.precision = "bf16";
  o.optim.lr = 0.03;
  o.schedule.warmup = 0;
  Training plain(o);
  o.train.checkpoint_activations = true;
  Training again(o);
  for (Training* run : {&plain, &again}) run->steps(0, 4);
  const auto a = plain.step->read(true), b = again.step->read(true);
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i].loss / a[i].count, b[i].loss / b[i].count, 1e-3 * a[i].loss / a[i].count) << i;
}

// Rows with different numbers of targets: the padding of their list has neither loss nor gradient.
TEST(Step, PaddedTargetsDoNotCount) {
  TrainOptions o = small("linear:heads=2", "cpu");
  o.task = "copy:M=12,least=4,G=0,A=28";
  Training plain(o), padded(o);
  std::set<int64_t> sizes;
  for (int64_t s = 0; s < 6; ++s) {
    const TargetBatch b = plain.batch(s), more = with_padded_targets(b);
    EXPECT_EQ(more.count, b.count);
    EXPECT_EQ(more.weights.sum().item<int64_t>(), b.count);
    EXPECT_GE(more.places.size(0), b.count);
    sizes.insert(more.places.size(0));
    plain.step->run({b}, double(b.count));
    padded.step->run({more}, double(b.count));
  }
  EXPECT_LE(sizes.size(), 2u);
  const auto a = plain.step->read(true), b = padded.step->read(true);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].loss, b[i].loss, 1e-4 * a[i].loss) << i;
    EXPECT_NEAR(a[i].norm, b[i].norm, 1e-3 * a[i].norm) << i;
  }
  const TargetBatch even = find_targets(make_task("mqar")->batch(Split::train, {0, 1, 2}));
  EXPECT_FALSE(with_padded_targets(even).weights.defined());
}

TEST(Step, GoesOnAtAnyStep) {
  Training run(small("linear:heads=2", "cpu"));
  run.step->begin_at(70);
  run.steps(70, 72);
  const std::vector<Step::Numbers> numbers = run.step->read(true);
  ASSERT_EQ(numbers.size(), 2u);
  EXPECT_EQ(numbers[0].step, 70);
  EXPECT_EQ(numbers[0].lr, run.o.optim.lr * schedule_share(run.o.schedule, 70));
}

// While it lives, nothing is recorded.
struct Eager {
  Eager() : before(replay_kernels()) { replay_kernels() = {}; }
  ~Eager() { replay_kernels() = before; }
  ReplayKernels before;
};

class StepCuda : public testing::TestWithParam<const char*> {};

TEST_P(StepCuda, AGraphGivesTheBitsOfEagerSteps) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  TrainOptions o = small(GetParam(), "cuda");
  o.model.dropout = 0.1;
  o.optim.ema = 0.9;
  Training replayed(o);
  replayed.made_there = true;
  replayed.steps(0, 20);
  EXPECT_EQ(replayed.step->replayed(), 17) << replayed.step->not_recorded();
  const Eager eager;
  Training plain(o), again(o);
  plain.steps(0, 20);
  again.steps(0, 20);
  EXPECT_EQ(plain.step->replayed(), 0);
  expect_same_bits(plain.weights(), again.weights());  // else the kernels themselves are not
  expect_same_bits(replayed.weights(), plain.weights());
  const auto a = replayed.step->read(true), b = plain.step->read(true);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].loss, b[i].loss) << i;
    EXPECT_EQ(a[i].norm, b[i].norm) << i;
    EXPECT_TRUE(std::isfinite(a[i].loss)) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(
    Mixers,
    StepCuda,
    testing::Values(
        "softmax:heads=2",
        "window:heads=2,window=16",
        "linear:heads=2",
        "taylor:heads=2",
        "taylor:heads=2,coefficients=learned",
        "retnet:heads=2",
        "gla:heads=2",
        "mlstm:heads=2",
        "metala:heads=2",
        "luna:heads=2",
        "norm_attention:heads=2",
        "deltanet:heads=2",
        "gated_deltanet:heads=2",
        "kda:heads=2",
        "mamba2",
        "s6",
        "rg_lru",
        "qlstm"
    )
);

TEST(StepCudaData, AccumulatedPartsAndLabelsAreRecordedToo) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const bool recompute : {false, true}) {
    TrainOptions o = small("linear:heads=2", "cuda");
    o.train.accumulation = 2;
    o.train.checkpoint_activations = recompute;
    const auto train = [&] {
      auto run = std::make_unique<Training>(o);
      for (int64_t s = 0; s < 12; ++s) {
        const std::vector<int64_t> all = run->sampler.at(s);
        std::vector<TargetBatch> parts;
        for (int64_t i = 0; i < 2; ++i)
          parts.push_back(find_targets(run->task->batch(Split::train, share_of(all, i, 2))));
        run->step->run(parts, double(parts[0].count + parts[1].count));
      }
      return run;
    };
    const auto replayed = train();
    EXPECT_EQ(replayed->step->replayed(), 9) << replayed->step->not_recorded();
    const Eager eager;
    expect_same_bits(replayed->weights(), train()->weights());
  }
}

// Batches of two shapes have a graph each; a shape that was never seen before runs at once.
TEST(StepCudaData, EachShapeHasItsGraph) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const auto train = [] {
    auto run = std::make_unique<Training>(small("linear:heads=2", "cuda"));
    for (int64_t s = 0; s < 20; ++s) {
      std::vector<int64_t> indices = run->sampler.at(s);
      indices.resize(s == 13 ? 3 : s % 2 == 0 ? 8 : 6);
      const TargetBatch b = find_targets(run->task->batch(Split::train, indices));
      run->step->run({b}, double(b.count));
    }
    return run;
  };
  const auto replayed = train();
  EXPECT_EQ(replayed->step->replayed(), 20 - 2 * 3 - 1) << replayed->step->not_recorded();
  const Eager eager;
  expect_same_bits(replayed->weights(), train()->weights());
}

// The list of targets is padded to one of few sizes.
TEST(StepCudaData, BatchesWithDifferentNumbersOfTargetsAreRecorded) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  TrainOptions o = small("linear:heads=2", "cuda");
  o.task = "copy:M=12,least=4,G=0,A=28";
  o.train.batch = 64;
  Training replayed(o);
  replayed.made_there = true;
  replayed.steps(0, 30);
  EXPECT_GE(replayed.step->replayed(), 20) << replayed.step->not_recorded();
  const Eager eager;
  Training plain(o);
  plain.made_there = true;
  plain.steps(0, 30);
  EXPECT_EQ(plain.step->replayed(), 0);
  expect_same_bits(replayed.weights(), plain.weights());
}

// Work that waits for the GPU is refused, and leaves the allocator and the generator as they were.
TEST(ReplayCuda, RefusesWorkThatWaits) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const at::Device gpu(at::kCUDA, 0);
  const OwnStream stream(gpu);
  const at::Tensor x = at::ones({8}, at::device(gpu));
  for (int turn = 0; turn < 2; ++turn) {
    std::string why;
    const auto refused =
        replay_kernels().record([&] { x.add_(x.sum().item<float>()); }, why, nullptr);
    EXPECT_EQ(refused, nullptr);
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(at::dropout(x, 0.5, true).size(0), 8);
    const auto replay = replay_kernels().record([&] { x.mul_(2); }, why, nullptr);
    ASSERT_NE(replay, nullptr) << why;
    replay->run();
    replay->run();
    EXPECT_EQ(x[0].item<float>(), turn == 0 ? 4 : 16);
  }
}

TEST(TrainCuda, GoesOnAsIfItHadNeverStopped) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const std::string folder = testing::TempDir() + "horner_step_" + std::to_string(::getpid());
  fs::remove_all(folder);
  struct Stop : std::exception {};
  TrainOptions o = small("gla:heads=2", "cuda");
  o.model.pattern = {"gla:heads=2", "softmax:heads=2"};
  o.model.dropout = 0.1;
  o.optim.ema = 0.9;
  o.schedule.steps = 40;
  o.eval.every = 15;
  o.eval.examples = 64;
  o.checkpoint.every = 10;
  o.out = folder;
  o.name = "whole";
  const TrainResult whole = train(o);
  o.name = "parts";
  for (const int64_t at : {4, 17, 33}) {
    const auto stop = [&](const TrainTick& t) {
      if (t.step == at) throw Stop();
    };
    EXPECT_THROW(train(o, stop), Stop);
  }
  const TrainResult parts = train(o);
  EXPECT_TRUE(parts.resumed);
  EXPECT_EQ(parts.test.values, whole.test.values);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string at = "/checkpoints/step_00000040/" + std::string(file);
    const Safetensors x = Safetensors::open(parts.folder + at);
    const Safetensors y = Safetensors::open(whole.folder + at);
    for (const std::string& name : x.names())
      EXPECT_TRUE(at::equal(x.get(name), y.get(name))) << name;
  }
  const auto losses_of = [](const std::string& run) {
    std::vector<double> all;
    for (const Json& line : read_metrics(run))
      if (line.contains("train/loss")) all.push_back(line["train/loss"]);
    return all;
  };
  EXPECT_EQ(losses_of(parts.folder).size(), 4u);
  EXPECT_EQ(losses_of(parts.folder), losses_of(whole.folder));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace horner
