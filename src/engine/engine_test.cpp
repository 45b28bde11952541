#include "engine/engine.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "core/thrown_test.h"

namespace horner {
namespace {

constexpr int64_t kVocabulary = 257;

std::shared_ptr<Model> make(const std::vector<std::string>& pattern, int64_t positions = 0) {
  ModelOptions o;
  o.pattern = pattern;
  o.D = 16;
  o.vocabulary = kVocabulary;
  o.positions = positions;
  auto model = make_model(o, 3);
  model->to(at::kDouble);
  model->eval();
  const c10::NoGradGuard no_graph;
  for (const at::Tensor& p : model->parameters()) p.mul_(3);  // so that tokens differ in likelihood
  return model;
}

std::vector<int32_t> prompt(int64_t n, int64_t start) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(int32_t((start * 37 + i * i * 11) % 256));
  return ids;
}

GenerateOptions sampled(int64_t tokens, int64_t seed) {
  GenerateOptions o;
  o.tokens = tokens;
  o.ignore_end = true;
  o.sampling.seed = seed;
  return o;
}

void finish(Engine& engine) {
  while (!engine.idle()) engine.work();
}

std::vector<int32_t> alone(
    const std::shared_ptr<Model>& model,
    const std::vector<int32_t>& ids,
    const GenerateOptions& o,
    const EngineOptions& options = {}
) {
  Engine engine(model_runner(model), byte_tokenizer(), options);
  const int64_t stream = engine.open();
  engine.feed(stream, ids);
  engine.generate(stream, o);
  finish(engine);
  return engine.tokens(stream);
}

// The definition: the whole sequence again for each token.
std::vector<int32_t> by_definition(
    Model& model, std::vector<int32_t> ids, const GenerateOptions& o
) {
  const c10::NoGradGuard no_graph;
  TokenSampler sampler(o.sampling);
  for (int64_t i = 0; i < o.tokens; ++i) {
    ModelState fresh;
    const at::Tensor logits =
        model.forward(at::tensor(ids, at::kLong).unsqueeze(0), fresh).select(1, -1).to(at::kFloat);
    const at::Tensor row = logits.squeeze(0).contiguous();
    ids.push_back(sampler.sample({row.const_data_ptr<float>(), size_t(row.numel())}, ids).token);
  }
  return ids;
}

TEST(Engine, WritesWhatTheModelDefines) {
  for (const char* mixer : {"softmax", "gla", "window:window=4"}) {
    const auto model = make({mixer});
    const GenerateOptions o = sampled(12, 5);
    const std::vector<int32_t> expected = by_definition(*model, prompt(9, 1), o);
    for (const int64_t piece : {1, 3, 100}) {
      EXPECT_EQ(alone(model, prompt(9, 1), o, {.piece = piece}), expected) << mixer << piece;
    }
    EXPECT_EQ(alone(model, prompt(9, 1), o, {.snapshot_every = 2}), expected) << mixer;
  }
}

// Streams of different lengths, that come and go at different times, have the texts that they have alone.
TEST(Engine, ATextIsTheSameAloneAndAmongOthers) {
  std::vector<std::vector<std::string>> patterns = {
      {"softmax", "gla"}, {"window:window=3", "mlstm"}};
  for (const MixerType& type : mixers())
    patterns.push_back({fmt::format("{}:{}", type.name, type.variants[0])});
  for (const auto& pattern : patterns) {
    const auto model = make(pattern);
    if (!model->causal()) continue;
    Engine engine(model_runner(model), byte_tokenizer(), {.piece = 4, .batch = 3});
    const int64_t lengths[] = {1, 9, 2, 14, 5};
    std::vector<int64_t> streams;
    for (int64_t i = 0; i < 5; ++i) {
      streams.push_back(engine.open());
      engine.feed(streams.back(), prompt(lengths[i], i));
      engine.generate(streams.back(), sampled(6 + 3 * i, i));
      for (int64_t rounds = 0; rounds < 2; ++rounds) engine.work();
    }
    finish(engine);
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(
          engine.tokens(streams[size_t(i)]),
          alone(model, prompt(lengths[i], i), sampled(6 + 3 * i, i))
      ) << fmt::format("{}, stream {}", fmt::join(pattern, " "), i);
    }
  }
}

TEST(Engine, LearnedPositionsCountEachRow) {
  const auto model = make({"linear"}, 24);
  Engine engine(model_runner(model), byte_tokenizer());
  const int64_t a = engine.open(), b = engine.open();
  engine.feed(a, prompt(3, 0));
  engine.feed(b, prompt(11, 1));
  engine.generate(a, sampled(8, 0));
  engine.generate(b, sampled(100, 1));
  Finish last = Finish::none;
  while (!engine.idle()) {
    for (const Event& event : engine.work()) {
      if (event.stream == b && event.finish != Finish::none) last = event.finish;
    }
  }
  EXPECT_EQ(last, Finish::longest);
  EXPECT_EQ(engine.tokens(a), alone(model, prompt(3, 0), sampled(8, 0)));
  EXPECT_EQ(engine.tokens(b), alone(model, prompt(11, 1), sampled(13, 1)));
  EXPECT_EQ(
      thrown<UsageError>([&] { engine.feed(b, prompt(1, 0)); }),
      "the text has 25 tokens; the model takes at most 24"
  );
}

TEST(Engine, ForksAndRollsBack) {
  for (const char* mixer : {"softmax", "gla", "taylor"}) {
    const auto model = make({mixer, "window:window=4"});
    Engine engine(model_runner(model), byte_tokenizer(), {.piece = 5, .snapshot_every = 6});
    const int64_t a = engine.open();
    engine.feed(a, prompt(20, 2));
    engine.generate(a, sampled(10, 1));
    for (int64_t i = 0; i < 8; ++i) engine.work();
    const int64_t b = engine.fork(a);  // in the middle of a text
    const std::vector<int32_t> past = engine.tokens(b);
    ASSERT_GT(past.size(), 20U);
    engine.generate(b, sampled(10, 2));  // another seed: another continuation
    finish(engine);
    EXPECT_EQ(engine.tokens(a), alone(model, prompt(20, 2), sampled(10, 1))) << mixer;
    EXPECT_EQ(engine.tokens(b), alone(model, past, sampled(10, 2))) << mixer;
    for (const int64_t to : {25, 20, 13, 6, 1}) {  // between snapshots and at them
      engine.roll_back(a, to);
      const std::vector<int32_t> rest = engine.tokens(a);
      ASSERT_EQ(int64_t(rest.size()), to);
      engine.generate(a, sampled(4, 3));
      finish(engine);
      EXPECT_EQ(engine.tokens(a), alone(model, rest, sampled(4, 3))) << mixer << to;
    }
  }
}

TEST(Engine, GoesOnFromAStateThatItIsGiven) {
  for (const char* mixer : {"softmax", "gla"}) {
    const auto model = make({mixer});
    const auto ids = prompt(21, 2);
    Engine engine(model_runner(model), byte_tokenizer(), {.snapshot_every = 0});
    const int64_t first = engine.open();
    engine.feed(first, ids);
    engine.pause_at(first, {7, 12});
    engine.work();
    EXPECT_EQ(engine.tokens_read(first), 7);
    engine.work();
    EXPECT_EQ(engine.tokens_read(first), 12);
    const std::vector<int32_t> known(ids.begin(), ids.begin() + 12);
    // Through named tensors, as a file has them.
    Runner& runner = engine.runner();
    auto state = runner.restore(runner.tensors(*engine.copy_state(first)));
    const int64_t second = engine.open(known, std::move(state));
    engine.feed(second, std::span(ids).subspan(12));
    EXPECT_EQ(engine.tokens_read(second), 12);
    engine.generate(second, sampled(9, 4));
    finish(engine);
    EXPECT_EQ(engine.tokens(second), alone(model, ids, sampled(9, 4))) << mixer;
  }
}

TEST(Engine, ScoresAPrompt) {
  const auto model = make({"gla"});
  const auto ids = prompt(11, 5);
  Engine engine(model_runner(model), byte_tokenizer(), {.piece = 4});
  const int64_t stream = engine.open();
  engine.score_prompt(stream, 2);
  engine.feed(stream, ids);
  finish(engine);
  const std::vector<SampledToken> scores = engine.take_prompt_scores(stream);
  ASSERT_EQ(scores.size(), ids.size() - 1);
  const c10::NoGradGuard no_graph;
  ModelState fresh;
  const at::Tensor logits = model->forward(at::tensor(ids, at::kLong).unsqueeze(0), fresh)
                                .squeeze(0)
                                .to(at::kFloat)
                                .contiguous();
  for (size_t i = 0; i < scores.size(); ++i) {
    const std::span<const float> row(
        logits.const_data_ptr<float>() + i * size_t(kVocabulary), size_t(kVocabulary)
    );
    EXPECT_EQ(scores[i].token, ids[i + 1]);
    EXPECT_NEAR(scores[i].logprob, logprob_of(row, ids[i + 1]), 1e-5);
    EXPECT_EQ(scores[i].top.size(), 2U);
    EXPECT_EQ(scores[i].top[0].token, likeliest(row, 1)[0].token);
  }
}

TEST(Engine, ReplaceKeepsTheCommonBeginning) {
  const auto model = make({"gla"});
  Engine engine(model_runner(model), byte_tokenizer(), {.piece = 100, .snapshot_every = 4});
  const int64_t stream = engine.open();
  std::vector<int32_t> ids = prompt(15, 0);
  engine.feed(stream, ids);
  finish(engine);
  EXPECT_EQ(engine.tokens_read(stream), 14);
  ids[9] = 200;
  engine.replace(stream, ids);
  EXPECT_EQ(engine.tokens_read(stream), 8);  // the snapshot before the change
  engine.generate(stream, sampled(5, 0));
  finish(engine);
  EXPECT_EQ(engine.tokens(stream), alone(model, ids, sampled(5, 0)));
}

TEST(Engine, StateBytesAreThoseOfTheStream) {
  const auto softmax = make({"softmax"}), gla = make({"gla"});
  for (const auto& model : {softmax, gla}) {
    Engine engine(model_runner(model), byte_tokenizer());
    const int64_t a = engine.open(), b = engine.open();
    EXPECT_EQ(engine.state_bytes(a), 0);
    engine.feed(a, prompt(20, 0));
    engine.feed(b, prompt(4, 0));
    engine.generate(a, sampled(3, 0));
    engine.generate(b, sampled(3, 0));
    finish(engine);
    const auto bytes = [&](int64_t T) {
      ModelState state;
      const c10::NoGradGuard no_graph;
      model->forward(at::zeros({1, T}, at::kLong), state);
      return state.bytes();
    };
    EXPECT_EQ(engine.state_bytes(a), bytes(22));  // the last token was not read
    EXPECT_EQ(engine.state_bytes(b), bytes(6));
  }
}

TEST(Engine, SnapshotsStayWithinTheirBytes) {
  const auto model = make({"gla"});
  const int64_t one = [&] {
    Engine engine(model_runner(model), byte_tokenizer());
    const int64_t stream = engine.open();
    engine.feed(stream, prompt(3, 0));
    finish(engine);
    return engine.state_bytes(stream);
  }();
  Engine engine(
      model_runner(model), byte_tokenizer(), {.snapshot_every = 5, .snapshot_bytes = 3 * one}
  );
  const int64_t stream = engine.open();
  engine.feed(stream, prompt(101, 0));
  finish(engine);
  EXPECT_EQ(engine.snapshot_bytes(stream), 3 * one);
  engine.roll_back(stream, 50);  // its snapshot was dropped: from the beginning
  EXPECT_EQ(engine.tokens_read(stream), 0);
}

// Writes a fixed text, whatever it reads: the next byte of the script.
class ScriptRunner : public Runner {
 public:
  explicit ScriptRunner(std::string script) : script_(std::move(script)) {}
  struct Place : StreamState {
    size_t read = 0;
  };
  int64_t vocabulary() const override { return kVocabulary; }
  std::string name() const override { return "script"; }
  int64_t weight_bytes() const override { return 0; }
  std::unique_ptr<StreamState> open() override { return std::make_unique<Place>(); }
  std::unique_ptr<StreamState> fork(const StreamState& state) override {
    auto copy = std::make_unique<Place>();
    copy->read = static_cast<const Place&>(state).read;
    return copy;
  }
  int64_t bytes_after(int64_t) const override { return 64; }
  int64_t bytes(const StreamState&) const override { return 8; }
  void read(StreamState& state, std::span<const int32_t> tokens, at::Tensor*) override {
    static_cast<Place&>(state).read += tokens.size();
  }
  at::Tensor step(std::span<StreamState* const> states, std::span<const int32_t>) override {
    const at::Tensor logits = at::zeros({int64_t(states.size()), kVocabulary});
    for (size_t i = 0; i < states.size(); ++i) {
      const size_t at = static_cast<Place&>(*states[i]).read++;
      const int64_t next = at < script_.size() ? uint8_t(script_[at]) : kByteSeparator;
      logits[int64_t(i)][next] = 50;
    }
    return logits;
  }

 private:
  std::string script_;
};

struct Written {
  std::string text;
  Finish finish = Finish::none;
  int64_t events = 0;
};

Written write(Engine& engine, int64_t stream, const GenerateOptions& o) {
  Written all;
  engine.generate(stream, o);
  while (!engine.idle()) {
    for (const Event& event : engine.work()) {
      EXPECT_EQ(all.finish, Finish::none);
      all.text += event.text;
      all.finish = event.finish;
      ++all.events;
    }
  }
  return all;
}

Written script(const std::string& text, const GenerateOptions& o) {
  Engine engine(std::make_unique<ScriptRunner>(text), byte_tokenizer());
  const int64_t stream = engine.open();
  engine.feed(stream, std::vector<int32_t>{65});
  return write(engine, stream, o);
}

TEST(Engine, TextsEndWhereTheyShould) {
  const Written ended = script("h\xc3\xa9llo", {});
  EXPECT_EQ(ended.text, "h\xc3\xa9llo");
  EXPECT_EQ(ended.finish, Finish::end);
  EXPECT_EQ(ended.events, 7);
  const Written cut = script("h\xc3\xa9llo", {.tokens = 2});
  EXPECT_EQ(cut.text, "h\xef\xbf\xbd");  // in the middle of a character
  EXPECT_EQ(cut.finish, Finish::tokens);
  const Written stopped = script("one\nUser: two", {.stop = {"\nUser:"}});
  EXPECT_EQ(stopped.text, "one");
  EXPECT_EQ(stopped.finish, Finish::stop);
  const Written by_token = script("a.b", {.ends = {'.'}});
  EXPECT_EQ(by_token.text, "a");
  EXPECT_EQ(by_token.finish, Finish::end);
  const Written none = script("abc", {.tokens = 0});
  EXPECT_EQ(none.text, "");
  EXPECT_EQ(none.finish, Finish::tokens);
}

std::shared_ptr<const TokenMask> regex_mask(const char* pattern) {
  return std::make_shared<const TokenMask>(
      std::make_shared<const TokenTrie>(byte_tokenizer()), grammar::regex_grammar(pattern)
  );
}

// The script wants one text, the mask another.
TEST(Engine, AMaskHoldsTheText) {
  const Written digits = script("abc", {.mask = regex_mask("[0-9]{3}")});
  EXPECT_EQ(digits.text.size(), 3U);
  EXPECT_EQ(digits.text.find_first_not_of("0123456789"), std::string::npos) << digits.text;
  EXPECT_EQ(digits.finish, Finish::end);  // nothing can follow, so no end token is asked for
  EXPECT_EQ(script("abc", {.mask = regex_mask("a[b-z]+[^b-z]")}).text.substr(0, 3), "abc");
  const Written half = script("abc", {.tokens = 2, .mask = regex_mask("\xc3\xa9\xc3\xa9")});
  EXPECT_EQ(half.text, "\xc3\xa9");
  EXPECT_EQ(half.finish, Finish::tokens);
  const Written ended = script("ab", {.mask = regex_mask("a(bc)*b*")});
  EXPECT_EQ(ended.text, "ab");  // the script's end token, where the grammar has an end
  EXPECT_EQ(ended.finish, Finish::end);
  const Written not_yet = script("a", {.mask = regex_mask("a+b{2}")});
  EXPECT_EQ(not_yet.finish, Finish::end);
  EXPECT_TRUE(not_yet.text.ends_with("bb")) << not_yet.text;
  const Written empty = script("abc", {.ignore_end = true, .mask = regex_mask("")});
  EXPECT_EQ(empty.text, "");
  EXPECT_EQ(empty.finish, Finish::end);
  GenerateOptions forbidden{.mask = regex_mask("x")};
  forbidden.sampling.logit_bias = {"120:-inf"};
  EXPECT_EQ(script("abc", forbidden).finish, Finish::no_token);
}

// Texts that share a mask, are sampled, forked and cancelled.
TEST(Engine, AMaskIsSharedByTexts) {
  const auto model = make({"gla"});
  Engine engine(model_runner(model), byte_tokenizer());
  const auto mask = std::make_shared<const TokenMask>(
      std::make_shared<const TokenTrie>(byte_tokenizer()),
      grammar::schema_grammar(Json{
          {"type", "array"}, {"items", {{"type", "integer"}}}, {"maxItems", 4}})
  );
  std::map<int64_t, std::string> texts;
  std::map<int64_t, Finish> ends;
  const auto work = [&] {
    for (const Event& event : engine.work()) {
      texts[event.stream] += event.text;
      if (event.finish != Finish::none) ends[event.stream] = event.finish;
    }
  };
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t stream = engine.open();
    engine.feed(stream, prompt(3, i));
    GenerateOptions o = sampled(400, i);
    o.mask = mask;
    engine.generate(stream, o);
  }
  work();
  engine.cancel(4);
  const int64_t fork = engine.fork(0);  // a text of its own, from the mask's start
  GenerateOptions o = sampled(400, 9);
  o.mask = mask;
  engine.generate(fork, o);
  while (!engine.idle()) work();
  for (const int64_t stream : {int64_t(0), int64_t(1), int64_t(2), int64_t(3), fork}) {
    EXPECT_EQ(ends[stream], Finish::end);
    const Json json = parse_json(texts[stream], "text");
    EXPECT_TRUE(json.is_array() && json.size() <= 4) << texts[stream];
  }
  EXPECT_EQ(ends[4], Finish::cancelled);
}

TEST(Engine, ReadsSeveralPromptsARoundWhenManyWait) {
  Engine engine(model_runner(make({"gla"})), byte_tokenizer(), {.piece = 4, .waiting = 3});
  const auto read = [&] {
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < 7; ++i) tokens.push_back(engine.tokens_read(i));
    return tokens;
  };
  for (int64_t i = 0; i < 7; ++i) {
    engine.open();
    engine.feed(i, prompt(10, i));
  }
  engine.work();  // 7 wait: 3 pieces
  EXPECT_EQ(read(), (std::vector<int64_t>{4, 4, 4, 0, 0, 0, 0}));
  engine.work();
  engine.work();
  EXPECT_EQ(read(), (std::vector<int64_t>{8, 8, 4, 4, 4, 4, 4}));
  for (int i = 0; i < 4; ++i) engine.work();  // 3, 3, 2 and 2 pieces
  EXPECT_EQ(read(), (std::vector<int64_t>{9, 9, 9, 9, 9, 8, 8}));
  engine.work();
  engine.work();
  EXPECT_EQ(read(), std::vector<int64_t>(7, 9));  // the last token waits for a text
  EXPECT_TRUE(engine.idle());
}

TEST(Engine, CancelKeepsWhatWasWritten) {
  Engine engine(std::make_unique<ScriptRunner>("abcdefgh"), byte_tokenizer());
  const int64_t stream = engine.open();
  engine.feed(stream, std::vector<int32_t>{65});
  engine.generate(stream, {.stop = {"cx"}});
  std::string text;
  for (int64_t i = 0; i < 3; ++i) {
    for (const Event& event : engine.work()) text += event.text;
  }
  EXPECT_EQ(text, "ab");  // "c" may begin the stop string
  engine.cancel(stream);
  EXPECT_FALSE(engine.idle());
  const std::vector<Event> events = engine.work();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].text, "c");
  EXPECT_EQ(events[0].finish, Finish::cancelled);
  EXPECT_FALSE(events[0].has_token);
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(engine.tokens(stream).size(), 4U);
  EXPECT_EQ(write(engine, stream, {}).text, "defgh");  // goes on
}

TEST(Engine, MistakesAreSaid) {
  Engine engine(model_runner(make({"gla"})), byte_tokenizer());
  const int64_t stream = engine.open();
  EXPECT_EQ(
      thrown<UsageError>([&] { engine.generate(stream, {}); }),
      "[engine] stream 0 has no token to go on from"
  );
  EXPECT_EQ(
      thrown<UsageError>([&] { engine.feed(stream, std::vector<int32_t>{257}); }),
      "there is no token 257; the model's vocabulary has 257"
  );
  EXPECT_EQ(thrown<UsageError>([&] { engine.feed(7, {}); }), "[engine] there is no stream 7");
  engine.close(stream);
  EXPECT_EQ(thrown<UsageError>([&] { engine.tokens(stream); }), "[engine] there is no stream 0");
  ModelOptions o;
  o.classes = 3;
  EXPECT_EQ(
      thrown<UsageError>([&] { model_runner(make_model(o, 0)); }),
      "it is no language model: it sorts sequences into 3 classes"
  );
  o.classes = 0;
  o.output = "number";
  EXPECT_EQ(
      thrown<UsageError>([&] { model_runner(make_model(o, 0)); }),
      "it is no language model: its output is number"
  );
  EXPECT_EQ(
      thrown<UsageError>([&] { model_runner(make({"softmax:causal=false"})); }),
      "it is no language model: it reads in both directions"
  );
}

}  // namespace
}  // namespace horner
