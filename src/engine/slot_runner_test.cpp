#include "engine/slot_runner.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <set>

#include "core/check.h"
#include "core/device.h"
#include "core/thrown_test.h"
#include "engine/engine.h"

namespace horner {
namespace {

std::shared_ptr<Model> make(const std::vector<std::string>& pattern, int64_t positions = 0) {
  ModelOptions o;
  o.pattern = pattern;
  o.D = pattern[0].find("key=64") == std::string::npos ? 16 : 128;
  o.vocabulary = 257;
  o.positions = positions;
  auto model = make_model(o, 3);
  model->eval();
  const c10::NoGradGuard no_graph;
  for (const at::Tensor& p : model->parameters()) p.mul_(3);  // so that tokens differ in likelihood
  return model;
}

std::vector<std::vector<std::string>> patterns() {
  std::vector<std::vector<std::string>> all = {
      {"softmax:position.kind=rope,position.scaling=linear,position.scaling_factor=2", "gla"},
      {"softmax:heads=4,groups=2,key=64,value=64"},  // what the GPU's kernels take
      {"hybrid:far=gla,heads=4,groups=2,key=64,value=64,window=8,sinks=4"},
      {"window:window=3", "mlstm"},
      {"hybrid:far=gated_deltanet,window=4,sinks=2"}};
  for (const MixerType& type : mixers())
    all.push_back({fmt::format("{}:{}", type.name, type.variants[0])});
  std::erase_if(all, [](const auto& pattern) { return !make(pattern)->causal(); });
  return all;
}

std::vector<int32_t> prompt(int64_t n, int64_t start) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(int32_t((start * 37 + i * i * 11) % 256));
  return ids;
}

// The logits of a stream, for tokens that are given.
at::Tensor logits_of(Runner& runner, const std::vector<int32_t>& ids, int64_t read) {
  const auto state = runner.open();
  if (read > 0) runner.read(*state, std::span(ids).first(size_t(read)));
  std::vector<at::Tensor> rows;
  for (size_t i = size_t(read); i < ids.size(); ++i)
    rows.push_back(runner.step(std::vector{state.get()}, std::vector{ids[i]}).clone());
  return at::cat(rows);
}

// Streams of different lengths come, fork, are read and leave; each has the logits that it has alone in Model::forward.
void expect_logits_of_model_runner(
    const std::vector<std::string>& pattern, at::Device device, SlotOptions o, double bound
) {
  const std::string name = fmt::format("{} {}", pattern[0], o.invariant);
  const auto plain = model_runner(make(pattern));
  auto model = make(pattern);
  model->to(device);
  const auto runner = slot_runner(model, o);
  constexpr int64_t kStreams = 5, kTokens = 14;
  std::vector<std::unique_ptr<StreamState>> states(kStreams);
  std::vector<int64_t> at(kStreams, 0);
  std::vector<std::vector<int32_t>> ids;
  std::vector<at::Tensor> wanted;
  for (int64_t s = 0; s < kStreams; ++s) {
    ids.push_back(prompt(kTokens + s, s % 3));
    wanted.push_back(logits_of(*plain, ids.back(), 0));
  }
  for (int64_t round = 0; round < 40; ++round) {
    const auto open = size_t(round % kStreams);
    if (round < 2 * kStreams && round % 2 == 0 && !states[open]) {
      states[open] = runner->open();
      const auto read = int64_t(open);  // the first one has read nothing when it steps
      if (read > 0) runner->read(*states[open], std::span(ids[open]).first(size_t(read)));
      at[open] = read;
    }
    if (round % 7 == 3 && states[open]) states[open] = runner->fork(*states[open]);
    if (round % 11 == 5 && states[open] && at[open] + 2 <= int64_t(ids[open].size())) {
      runner->read(*states[open], std::span(ids[open]).subspan(size_t(at[open]), 2));
      at[open] += 2;
    }
    std::vector<StreamState*> step;
    std::vector<size_t> who;
    for (size_t s = 0; s < size_t(kStreams); ++s) {
      if (!states[s] || (round + int64_t(s)) % 4 == 0) continue;  // one waits
      if (at[s] == int64_t(ids[s].size())) {
        states[s].reset();  // its row is free
        at[s] = -1;
        continue;
      }
      step.push_back(states[s].get()), who.push_back(s);
    }
    if (step.empty()) continue;
    std::vector<int32_t> tokens;
    for (const size_t s : who) tokens.push_back(ids[s][size_t(at[s])]);
    const at::Tensor logits = runner->step(step, tokens);
    for (size_t i = 0; i < who.size(); ++i) {
      const at::Tensor own = wanted[who[i]][at[who[i]]++];
      const double error = (logits[int64_t(i)] - own).abs().max().item<double>();
      const double size = own.abs().max().item<double>();
      ASSERT_LE(error, bound * size) << name << ", round " << round << ", stream " << who[i];
    }
  }
}

TEST(SlotRunner, HasTheLogitsOfModelForward) {
  for (const auto& pattern : patterns()) {
    for (const bool invariant : {false, true})
      expect_logits_of_model_runner(pattern, at::kCPU, {8, invariant, false}, 1e-4);
  }
}

TEST(SlotRunner, LongTextsGetMoreRoom) {
  for (const char* mixer : {"softmax", "window:window=5"}) {
    const auto plain = model_runner(make({mixer})),
               runner = slot_runner(make({mixer}), {2, false, false});
    const std::vector<int32_t> ids = prompt(530, 1);
    const at::Tensor a = logits_of(*plain, ids, 240), b = logits_of(*runner, ids, 240);
    EXPECT_LE((a - b).abs().max().item<double>(), 1e-4 * a.abs().max().item<double>()) << mixer;
  }
}

TEST(SlotRunner, ItsStateIsAFile) {
  for (const char* mixer : {"softmax", "window:window=5", "gla"}) {
    const auto runner = slot_runner(make({mixer}, 64), {2, false, false});
    const std::vector<int32_t> ids = prompt(12, 1), more = {5};
    const auto state = runner->open();
    runner->read(*state, ids);
    runner->step(std::vector{state.get()}, more);  // it lies in slots now
    EXPECT_EQ(runner->bytes(*state), runner->bytes_after(13)) << mixer;
    const auto again = runner->restore(runner->tensors(*state));
    const at::Tensor a = runner->step(std::vector{state.get()}, more).clone();
    EXPECT_TRUE(a.equal(runner->step(std::vector{again.get()}, more))) << mixer;
    EXPECT_EQ(
        thrown<DataError>([&] { runner->restore({}); }),
        "the state was not made by this model: it has no length"
    );
  }
}

TEST(SlotRunner, WritesTheLikeliestTokens) {
  const std::vector<int32_t> ids = prompt(9, 2);
  std::vector<std::vector<int32_t>> texts;
  for (const bool slots : {false, true}) {
    Engine engine(
        slots ? slot_runner(make({"softmax"}), {4, false, false}) : model_runner(make({"softmax"})),
        byte_tokenizer()
    );
    for (int64_t i = 0; i < 3; ++i) {
      engine.open();
      engine.feed(i, std::span(ids).first(size_t(1 + 4 * i)));
      engine.generate(i, {.sampling = {.temperature = 0}, .tokens = 12, .ignore_end = true});
    }
    while (!engine.idle()) engine.work();
    for (int64_t i = 0; i < 3; ++i) texts.push_back(engine.tokens(i));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(texts[i], texts[i + 3]);
}

// Streams 0 .. 3 of a runner, the first with nothing read.
std::vector<std::unique_ptr<StreamState>> four_streams(Runner& runner) {
  std::vector<std::unique_ptr<StreamState>> states;
  for (int64_t i = 0; i < 4; ++i) {
    states.push_back(runner.open());
    if (i > 0) runner.read(*states.back(), prompt(3 * i, i));
  }
  return states;
}

void expect_draws_of_the_sampler(at::Device device) {
  auto model = make({"softmax", "gla"});
  model->to(device);
  const auto runner = slot_runner(model, {4, true, false});
  std::set<int32_t> different;
  for (int64_t round = 0; round < 60; ++round) {
    const auto drawn = four_streams(*runner), whole = four_streams(*runner);
    const std::vector<int32_t> tokens = {5, 6, 7, 8}, before(size_t(round), 9);
    std::vector<StreamState*> a, b;
    std::vector<std::optional<Draw>> draws;
    std::vector<int32_t> wanted, next(4);
    for (const auto& state : whole) a.push_back(state.get());
    for (const auto& state : drawn) b.push_back(state.get());
    const at::Tensor logits = runner->step(a, tokens).clone();
    for (int64_t i = 0; i < 4; ++i) {
      const SamplingOptions o{.temperature = 0.7 * double((round + i) % 4), .seed = i};
      TokenSampler sampler(o);
      const float* row = logits[i].const_data_ptr<float>();
      wanted.push_back(sampler.sample({row, 257}, before).token);
      draws.push_back(Draw{o.temperature, sampling_uniform(uint64_t(i), uint64_t(round))});
    }
    const auto other = size_t(round % 5);  // 4: all are drawn
    if (other < 4) draws[other].reset();
    const at::Tensor rest = runner->step_drawn(b, tokens, draws, next);
    for (size_t i = 0; i < 4; ++i) {
      if (i != other) ASSERT_EQ(next[i], wanted[i]) << round << " " << i;
      different.insert(wanted[i]);
    }
    ASSERT_EQ(rest.sizes(), (std::vector<int64_t>{other < 4, 257}));
    if (other < 4) ASSERT_TRUE(rest[0].equal(logits[int64_t(other)])) << round;
  }
  EXPECT_GT(different.size(), 50u);
}

TEST(SlotRunner, DrawsAsTheSamplerDoes) { expect_draws_of_the_sampler(at::kCPU); }

// Some of the others are greedy, and some need their logits on the host.
void expect_the_same_text_alone_and_beside_others(at::Device device) {
  std::vector<std::vector<int32_t>> texts;
  for (const int64_t streams : {1, 12}) {
    auto model = make({"softmax", "gla"});
    model->to(device);
    Engine engine(slot_runner(model, {12, true, device.is_cuda()}), byte_tokenizer());
    for (int64_t i = 0; i < streams; ++i) {
      GenerateOptions o{.tokens = 40 + 3 * i, .ignore_end = true};
      o.sampling.temperature = i % 3 == 1 ? 0 : 0.9;
      o.sampling.top_k = i % 3 == 2 ? 5 : 0;
      o.sampling.seed = i;
      engine.open();
      engine.feed(i, prompt(20 + i, i));
      engine.generate(i, o);
    }
    while (!engine.idle()) engine.work();
    texts.push_back(engine.tokens(0));
  }
  EXPECT_EQ(texts[0].size(), 60u);
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(SlotRunner, WritesTheSameTextAloneAndBesideOthers) {
  expect_the_same_text_alone_and_beside_others(at::kCPU);
}

// All rows get room for the longest stream, so one long text must not take the memory of all.
TEST(SlotRunner, TheLongestStreamFitsInEveryRow) {
  const auto free = slot_runner(make({"softmax"}), {4, true, false});
  const int64_t token = free->bytes_after(1) - free->bytes_after(0);
  EXPECT_EQ(free->longest(), 0);
  SlotOptions o{4, true, false};
  o.memory = 4 * token * 600;
  const auto runner = slot_runner(make({"softmax"}), o);
  EXPECT_EQ(runner->longest(), 512);
  EXPECT_EQ(slot_runner(make({"softmax"}, 300), o)->longest(), 300);
  EXPECT_EQ(slot_runner(make({"gla"}), o)->longest(), 0);  // its state does not grow
  Engine engine(slot_runner(make({"softmax"}), o), byte_tokenizer());
  engine.open();
  engine.feed(0, prompt(500, 1));
  engine.generate(0, {.tokens = 1000, .ignore_end = true});
  while (!engine.idle()) engine.work();
  EXPECT_EQ(engine.tokens(0).size(), 512u);
  const std::vector<int32_t> ids = prompt(512, 1);
  const at::Tensor a = logits_of(*free, ids, 480), b = logits_of(*runner, ids, 480);
  EXPECT_LE((a - b).abs().max().item<double>(), 1e-4 * a.abs().max().item<double>());
  o.memory = 4 * token * 255;
  const std::string why = thrown<UsageError>([&] { slot_runner(make({"softmax"}), o); });
  EXPECT_NE(why.find("no room for 4 streams of 256 tokens"), std::string::npos) << why;
}

TEST(SlotRunner, RefusesMoreStreamsThanRows) {
  const auto runner = slot_runner(make({"gla"}), {1, false, false});
  std::vector<std::unique_ptr<StreamState>> own;
  for (int i = 0; i < 2; ++i) {
    own.push_back(runner->open());
    runner->read(*own.back(), prompt(3, i));
  }
  EXPECT_EQ(
      thrown<UsageError>([&] {
        runner->step(std::vector{own[0].get(), own[1].get()}, std::vector{1, 2});
      }),
      "[engine] a step has at most 1 streams, got 2"
  );
}

TEST(SlotRunner, NarrowMatricesComputeInBf16) {
  const auto model = make({"softmax"});
  expect_logits_of_model_runner({"softmax"}, at::kCPU, {8, false, true}, 0.1);
  slot_runner(model, {8, false, true});
  for (const auto& parameter : model->named_parameters()) {
    const bool norm = parameter.key().find("norm") != std::string::npos;
    EXPECT_EQ(parameter.value().scalar_type(), norm ? at::kFloat : at::kBFloat16)
        << parameter.key();
  }
}

// ---- on a GPU -------------------------------------------------------------------------------------------

TEST(SlotRunnerCuda, WritesTheSameTextAloneAndBesideOthers) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_the_same_text_alone_and_beside_others(at::kCUDA);
}

TEST(SlotRunnerCuda, DrawsAsTheSamplerDoes) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_draws_of_the_sampler(at::kCUDA);
}

TEST(SlotRunnerCuda, HasTheLogitsOfModelForward) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const auto& pattern : patterns()) {
    for (const bool invariant : {false, true})
      expect_logits_of_model_runner(pattern, at::kCUDA, {8, invariant, false}, 2e-3);
    expect_logits_of_model_runner(pattern, at::kCUDA, {8, false, true}, 0.2);
  }
}

TEST(SlotRunnerCuda, RecordsItsSteps) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const auto& pattern : patterns()) {
    auto model = make(pattern);
    model->to(at::kCUDA);
    const auto runner = slot_runner(model, {8, false, true});
    logits_of(*runner, prompt(20, 1), 4);
    EXPECT_TRUE(runner->name().ends_with(", CUDA graphs")) << pattern[0] << ": " << runner->name();
  }
}

TEST(SlotRunnerCuda, AStreamHasTheSameBitsAloneAndBesideOthers) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const auto& pattern : patterns()) {
    auto model = make(pattern);
    model->to(at::kCUDA);
    const auto runner = slot_runner(model, {64, true, true});
    const std::vector<int32_t> ids = prompt(300, 1);
    const at::Tensor alone = logits_of(*runner, ids, 200);
    std::vector<std::unique_ptr<StreamState>> states;
    for (int64_t i = 0; i < 64; ++i) {
      states.push_back(runner->open());
      std::vector<int32_t> own = i == 37 ? ids : prompt(1 + 9 * i, i);
      if (i == 37) own.resize(200);
      runner->read(*states.back(), own);
    }
    std::vector<StreamState*> all;
    for (const auto& state : states) all.push_back(state.get());
    for (size_t t = 200; t < ids.size(); ++t) {
      std::vector<int32_t> tokens(64, int32_t(t % 200));
      tokens[37] = ids[t];
      const at::Tensor logits = runner->step(all, tokens);
      ASSERT_TRUE(logits[37].equal(alone[int64_t(t) - 200])) << pattern[0] << " " << t;
    }
  }
}

}  // namespace
}  // namespace horner
