// A text that cannot begin or go on is an answer, whatever the runner does, and the other texts go on.
#include "serve/worker.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace horner {
namespace {

constexpr int32_t kBad = 66;    // after this token the logits are no numbers
constexpr int32_t kLarge = 67;  // there is no memory to read it

// Its first `refusals` streams cannot be opened, as on a device without memory.
class Fragile : public Runner {
 public:
  explicit Fragile(int64_t refusals) : refusals_(refusals) {}
  int64_t vocabulary() const override { return 257; }
  std::string name() const override { return "zeros"; }
  int64_t weight_bytes() const override { return 0; }
  std::unique_ptr<StreamState> open() override {
    if (refusals_-- > 0) throw std::runtime_error("no memory on the device");
    return std::make_unique<StreamState>();
  }
  std::unique_ptr<StreamState> fork(const StreamState&) override {
    return std::make_unique<StreamState>();
  }
  int64_t bytes_after(int64_t) const override { return 64; }
  int64_t bytes(const StreamState&) const override { return 64; }
  void read(StreamState&, std::span<const int32_t> tokens, at::Tensor* logits) override {
    if (std::find(tokens.begin(), tokens.end(), kLarge) != tokens.end()) throw std::bad_alloc();
    if (logits) *logits = rows(tokens);
  }
  at::Tensor step(std::span<StreamState* const>, std::span<const int32_t> tokens) override {
    return rows(tokens);
  }

 private:
  at::Tensor rows(std::span<const int32_t> tokens) const {
    at::Tensor logits = at::zeros({int64_t(tokens.size()), vocabulary()});
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == kBad) logits[int64_t(i)].fill_(std::numeric_limits<float>::quiet_NaN());
    }
    return logits;
  }
  int64_t refusals_;
};

PromptTask task_of(std::vector<int32_t> prompt) {
  PromptTask task;
  task.channel = std::make_shared<TextChannel>(4096);
  task.prompt = std::move(prompt);
  task.options.tokens = 1;
  task.options.sampling.temperature = 0;
  task.options.ignore_end = true;
  return task;
}

std::vector<PromptTask> list_of(const auto&... tasks) {
  std::vector<PromptTask> list;
  (list.push_back(tasks), ...);
  return list;
}

TextEvent last_event(TextChannel& channel) {
  while (true) {
    for (TextEvent& event : channel.take(std::chrono::minutes(1))) {
      if (!event.error.empty() || event.event.finish != Finish::none) return std::move(event);
    }
  }
}

TEST(Worker, ARunnersErrorIsTheAnswerOfItsTextAlone) {
  ServeMetrics metrics;
  Worker worker(std::make_unique<Fragile>(1), byte_tokenizer(), {}, metrics);
  const PromptTask one = task_of({1, 2}), two = task_of({1, 2});
  worker.submit(list_of(one, two));
  const TextEvent failed = last_event(*one.channel);
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.error, "no memory on the device");
  EXPECT_EQ(last_event(*two.channel).event.finish, Finish::tokens);
}

TEST(Worker, AReadWithoutMemoryEndsItsTextAlone) {
  ServeMetrics metrics;
  Worker worker(std::make_unique<Fragile>(0), byte_tokenizer(), {}, metrics);
  PromptTask old = task_of({1, 2}), large = task_of({1, kLarge, 2});
  old.options.tokens = 500;  // it is being written meanwhile
  large.n = 3;
  worker.submit(list_of(old));
  worker.submit(list_of(large));
  EXPECT_NE(last_event(*large.channel).error.find("no memory left"), std::string::npos);
  EXPECT_EQ(last_event(*old.channel).event.finish, Finish::tokens);
  const PromptTask later = task_of({1, 2});
  worker.submit(list_of(later));
  EXPECT_EQ(last_event(*later.channel).event.finish, Finish::tokens);
}

TEST(Worker, LogitsThatAreNoNumbersEndTheirTextAlone) {
  ServeMetrics metrics;
  Worker worker(std::make_unique<Fragile>(0), byte_tokenizer(), {}, metrics);
  PromptTask good = task_of({1, 2}), scored = task_of({1, kBad, 2});
  const PromptTask bad = task_of({1, kBad});
  good.options.tokens = 500;  // it is being written while the others fail
  scored.score_prompt = 0;
  worker.submit(list_of(good, bad, scored));
  EXPECT_NE(last_event(*bad.channel).error.find("is not a number"), std::string::npos);
  EXPECT_NE(last_event(*scored.channel).error.find("is not a number"), std::string::npos);
  const TextEvent end = last_event(*good.channel);
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(end.event.finish, Finish::tokens);
}

}  // namespace
}  // namespace horner
