#include "train/train.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "tasks/text/text.h"
#include "train/checkpoint.h"
#include "train/cost.h"
#include "train/evaluate.h"
#include "train/resolve.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : path(testing::TempDir() + "horner_train_" + std::to_string(::getpid())) {
    fs::remove_all(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string path;
};

TrainOptions small(const std::string& out, const std::string& name) {
  TrainOptions o;
  o.task = "mqar:T=16,pairs=2,vocabulary=32,test=16";
  o.out = out;
  o.name = name;
  o.device = "cpu";
  o.model.D = 16;
  o.model.pattern = {"softmax:heads=2", "linear:heads=2"};
  o.model.dropout = 0.1;
  o.optim.ema = 0.9;
  o.schedule.steps = 20;
  o.train.batch = 8;
  o.train.accumulation = 2;
  o.eval.every = 7;
  o.checkpoint.every = 4;
  o.log.every = 3;
  return o;
}

std::vector<Json> numbers_of(const std::string& folder) {  // metrics without what a clock says
  std::vector<Json> lines = read_metrics(folder);
  for (Json& line : lines) {
    for (const char* key : {"time", "tokens_per_second", "memory", "data_wait"}) line.erase(key);
  }
  return lines;
}

void expect_equal_tensors(const std::string& a, const std::string& b) {
  const Safetensors x = Safetensors::open(a), y = Safetensors::open(b);
  ASSERT_EQ(x.names(), y.names());
  for (const std::string& name : x.names())
    EXPECT_TRUE(at::equal(x.get(name), y.get(name))) << name;
}

struct Stop : std::exception {};

TEST(Train, GoesOnAsIfItHadNeverStopped) {
  const Folder folder;
  const TrainResult whole = train(small(folder.path, "whole"));
  EXPECT_TRUE(whole.finished);
  EXPECT_FALSE(whole.resumed);
  const TrainOptions o = small(folder.path, "parts");
  for (const int64_t at : {3, 9, 10, 18}) {  // thrown away back to the last checkpoint each time
    EXPECT_THROW(
        train(
            o,
            [&](const TrainTick& t) {
              if (t.step == at) throw Stop();
            }
        ),
        Stop
    );
  }
  const TrainResult parts = train(o);
  EXPECT_TRUE(parts.resumed);
  EXPECT_EQ(numbers_of(parts.folder), numbers_of(whole.folder));
  EXPECT_EQ(parts.test.values, whole.test.values);
  EXPECT_EQ(parts.test.by_example, whole.test.by_example);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string at = "/checkpoints/step_00000020/" + std::string(file);
    expect_equal_tensors(parts.folder + at, whole.folder + at);
  }
  const TrainResult read = train(o);                       // finished: only read again
  EXPECT_EQ(to_line(read.json()), to_line(parts.json()));  // as text: it holds NaN
}

TEST(Train, AFolderHoldsOneRun) {
  const Folder folder;
  TrainOptions o = small(folder.path, "one");
  o.schedule.steps = 1;
  train(o);
  o.optim.lr = 0.5;
  try {
    train(o);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("optim.lr = 0.001 then, 0.5 now"), std::string::npos)
        << error.what();
  }
  o.optim.lr = 0.001;
  o.resume = "never";
  EXPECT_THROW(train(o), UsageError);
}

TEST(Train, LearnsAndStopsAtItsTarget) {
  const Folder folder;
  TrainOptions o = small(folder.path, "learn");
  o.task = "mqar:T=8,pairs=1,vocabulary=16,test=64";
  o.model.dropout = 0;
  o.optim.ema = 0;
  o.optim.lr = 1e-2;
  o.train.batch = 64;
  o.schedule.steps = 400;
  o.schedule.kind = "constant";
  o.eval.every = 20;
  o.train.target = 0.98;
  const TrainResult r = train(o);
  EXPECT_EQ(r.stopped, "target");
  EXPECT_LT(r.steps, 400);
  EXPECT_GE(r.valid.values.at("accuracy"), 0.98);
  EXPECT_GT(r.test.values.at("accuracy"), 0.9);
}

TEST(Train, ALossThatIsNotFiniteEndsTheRunWithStepGroupAndCheckpoint) {
  const Folder folder;
  TrainOptions o = small(folder.path, "nan");
  o.optim.lr = 1e30;
  o.optim.clip = 0;
  o.checkpoint.every = 1;
  try {
    train(o);
    FAIL();
  } catch (const RunError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("step ")) << text;
    EXPECT_NE(text.find("group "), std::string::npos) << text;
    EXPECT_NE(text.find("last good checkpoint: "), std::string::npos) << text;
    EXPECT_NE(text.find("step_0000000"), std::string::npos) << text;
  }
}

TEST(Train, TheModelOfACheckpointIsTheOneThatWasTested) {
  const Folder folder;
  TrainOptions o = small(folder.path, "load");
  const TrainResult r = train(o);
  const auto model = load_model(r.folder);
  const auto task = make_task(o.task);
  const Scores s = evaluate(*model, *task, Split::test, {1000, 8, false}, at::kCPU);
  EXPECT_EQ(s.values, r.test.values);
  EXPECT_THROW(load_model(folder.path + "/none"), DataError);
}

TEST(Train, ACheckpointOfTextHoldsItsTokenizer) {
  const Folder folder;
  make_folder(folder.path);
  write_file(
      folder.path + "/tokenizer.json",
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, " ": 2, "ab": 3}, "merges": ["a b"]},
          "decoder": {"type": "Fuse"}})"
  );
  write_file(folder.path + "/text.txt", "ab ba aab bba abab ba ab aa bb ab ba ab ab ba aab");
  const std::string data = fmt::format("data={}/text.txt,T=4,valid=0.3,test=0", folder.path);
  TrainOptions o = small(folder.path, "bpe");
  o.schedule.steps = 1;
  for (const std::string& task :
       {fmt::format("bpe:{},tokenizer={}", data, folder.path), "byte:characters=true," + data}) {
    o.name = task.substr(0, 4);
    o.task = task;
    const TrainResult r = train(o);
    const Tokenizer read = load_tokenizer_of(r.folder);
    const auto trained = std::dynamic_pointer_cast<TextTask>(make_task(task));
    const Tokenizer& used = trained->corpus().tokenizer;
    ASSERT_EQ(read.vocabulary(), used.vocabulary()) << task;
    EXPECT_EQ(read.encode("abba ab"), used.encode("abba ab"));
    EXPECT_EQ(read.decode(read.encode("abba ab")), "abba ab") << task;
  }
}

// Another mixer keeps what it shares with the model whose weights it begins with.
TEST(Train, BeginsWithTheWeightsOfAnotherRun) {
  const Folder folder;
  const TrainResult host = train(small(folder.path, "host"));
  TrainOptions o = small(folder.path, "converted");
  o.model.pattern = {"luna:heads=2", "linear:heads=2"};
  o.from = host.folder;
  o.schedule.steps = 1;
  o.optim.lr = 0;
  const auto before = load_model(host.folder)->named_parameters();
  const auto after = load_model(train(o).folder)->named_parameters();
  size_t same = 0;
  for (const auto& entry : after) {
    if (!before.contains(entry.key())) continue;
    EXPECT_TRUE(at::equal(entry.value(), before[entry.key()])) << entry.key();
    ++same;
  }
  EXPECT_EQ(same, before.size());
  o.name = "nothing";
  o.from = folder.path;
  EXPECT_THROW(train(o), DataError);
}

TEST(Train, RecomputedBlocksGiveTheSameGradients) {
  const auto task = make_task("mqar:T=16,pairs=2,vocabulary=32");
  const TargetBatch batch = find_targets(task->batch(Split::train, {0, 1, 2, 3}));
  ModelOptions o;
  o.D = 16;
  o.vocabulary = 32;
  o.dropout = 0.2;
  const auto model = make_model(o, 0);
  const auto gradients = [&](bool recompute) {
    model->zero_grad();
    at::manual_seed(5);
    Context context;
    context.recompute = recompute;
    losses(*model, batch, context).each.sum().backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& p : model->parameters()) all.push_back(p.grad().clone());
    return all;
  };
  const auto a = gradients(false), b = gradients(true);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-5, 1e-7)) << i;
}

TEST(Train, AccumulatedPartsAreOneBatch) {
  const Folder folder;
  TrainOptions o = small(folder.path, "one");
  o.model.dropout = 0;
  o.optim.ema = 0;
  o.train.accumulation = 1;
  const TrainResult one = train(o);
  o.name = "four";
  o.train.accumulation = 4;
  const TrainResult four = train(o);
  ASSERT_EQ(one.curve.size(), four.curve.size());
  for (size_t i = 0; i < one.curve.size(); ++i) {
    if (one.curve[i].step % o.log.every != 0) continue;  // a validation
    EXPECT_NEAR(one.curve[i].loss, four.curve[i].loss, 1e-4);
  }
}

// 2 (q, k, v, out: 4 D^2) + swiglu 3 D E, head D N at 4 of 64 positions, attention 2 T D, per
// layer.
TEST(Train, CountsFlops) {
  TrainOptions o;
  o.task = "mqar:T=64,pairs=4,vocabulary=128";
  o.device = "cpu";
  o.model.D = 64;
  const auto task = make_task(o.task);
  const Cost cost = cost_of(resolve(o, *task), *task);
  const double D = 64, E = 192, T = 64, N = 128;
  const double layer = 2 * (4 * D * D + 3 * D * E), attention = 2 * 2 * T * D;
  const double least = 2 * (layer + attention / 2) + 2 * D * N * 4 / 64;
  EXPECT_GE(cost.forward_flops_per_token, least * 0.99);
  EXPECT_LE(cost.forward_flops_per_token, (least + attention) * 1.01);
  EXPECT_GT(cost.activation_bytes, 64.0 * T * D * 4 * 2 * 8);  // more than eight tensors a layer
}

}  // namespace
}  // namespace horner
