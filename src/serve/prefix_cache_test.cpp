#include "serve/prefix_cache.h"

#include <gtest/gtest.h>

#include <array>

namespace horner {
namespace {

std::unique_ptr<Runner> small_runner() {
  ModelOptions o;
  o.pattern = {"gla"};
  o.D = 16;
  o.vocabulary = 64;
  auto model = make_model(o, 3);
  model->eval();
  return model_runner(model);
}

std::unique_ptr<StreamState> state_of(Runner& runner, const std::vector<int32_t>& tokens) {
  auto state = runner.open();
  runner.read(*state, tokens);
  return state;
}

TEST(PrefixCache, FindsTheLongestPrefix) {
  const auto runner = small_runner();
  PrefixCache cache(*runner, 1 << 20);
  for (const std::vector<int32_t>& known :
       std::vector<std::vector<int32_t>>{{1, 2}, {1, 2, 3, 4}, {1, 9}})
    cache.add(known, state_of(*runner, known));
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(cache.find(prompt, 5).tokens, 4);
  EXPECT_EQ(cache.find(prompt, 3).tokens, 2);
  EXPECT_EQ(cache.find(prompt, 1).tokens, 0);
  EXPECT_EQ(cache.find(prompt, 0).tokens, 0);
  EXPECT_EQ(cache.find(std::vector<int32_t>{2, 1}, 2).tokens, 0);
  // What goes on from a state does not change it.
  PrefixCache::Found found = cache.find(prompt, 5);
  const at::Tensor once = runner->step(std::vector{found.state.get()}, std::vector{5}).clone();
  PrefixCache::Found again = cache.find(prompt, 5);
  EXPECT_TRUE(once.equal(runner->step(std::vector{again.state.get()}, std::vector{5})));
}

TEST(PrefixCache, KeepsTheLastUsedWithinItsBytes) {
  const auto runner = small_runner();
  const std::vector<int32_t> one = {1};
  const int64_t each = runner->bytes(*state_of(*runner, one)) + 4;
  PrefixCache cache(*runner, 3 * each);
  for (int32_t i = 0; i < 3; ++i) cache.add(std::vector{i}, state_of(*runner, {i}));
  EXPECT_EQ(cache.states(), 3);
  EXPECT_EQ(cache.find(std::vector{0, 7}, 1).tokens, 1);  // 0 is used, so 1 is the oldest
  cache.add(std::vector{3}, state_of(*runner, {3}));
  EXPECT_EQ(cache.states(), 3);
  EXPECT_LE(cache.bytes(), 3 * each);
  EXPECT_FALSE(cache.contains(std::vector{1}));
  EXPECT_TRUE(cache.contains(std::vector{0}) && cache.contains(std::vector{2}));
  cache.add(std::vector{3}, state_of(*runner, {3}));  // a second time is no second state
  EXPECT_EQ(cache.states(), 3);
  cache.clear();
  EXPECT_EQ(cache.bytes(), 0);
}

// States of pieces of memory that the test names, 100 bytes each.
class Pieces : public Runner {
 public:
  struct Held : StreamState {
    std::vector<int> addresses;
  };
  int64_t vocabulary() const override { return 64; }
  std::string name() const override { return "pieces"; }
  int64_t weight_bytes() const override { return 0; }
  std::unique_ptr<StreamState> open() override { return std::make_unique<Held>(); }
  std::unique_ptr<StreamState> fork(const StreamState&) override { return open(); }
  int64_t bytes(const StreamState&) const override { return 0; }
  int64_t bytes_after(int64_t) const override { return 0; }
  void read(StreamState&, std::span<const int32_t>, at::Tensor*) override {}
  at::Tensor step(std::span<StreamState* const>, std::span<const int32_t>) override { return {}; }
  void for_memory(const StreamState& state, const Piece& piece) const override {
    ++asked;
    for (const int i : dynamic_cast<const Held&>(state).addresses) piece(&places[i], 100);
  }
  std::unique_ptr<StreamState> of(const std::vector<int>& addresses) {
    auto state = std::make_unique<Held>();
    state->addresses = addresses;
    return state;
  }

  std::array<char, 2000> places{};
  mutable int64_t asked = 0;
};

TEST(PrefixCache, CountsSharedMemoryOnce) {
  Pieces runner;
  PrefixCache cache(runner, 400 + 4 * 4);
  cache.add(std::vector{1}, runner.of({0, 1}));
  cache.add(std::vector{2}, runner.of({0, 2, 2}));
  EXPECT_EQ(cache.bytes(), 300 + 2 * 4);
  cache.add(std::vector{3}, runner.of({3}));
  EXPECT_EQ(cache.bytes(), 400 + 3 * 4);
  cache.add(
      std::vector{4}, runner.of({4})
  );  // the first state goes, but 0 is also of the second one
  EXPECT_FALSE(cache.contains(std::vector{1}));
  EXPECT_EQ(cache.bytes(), 400 + 3 * 4);
  cache.add(std::vector{5}, runner.of({5}));
  EXPECT_FALSE(cache.contains(std::vector{2}));
  EXPECT_EQ(cache.bytes(), 300 + 3 * 4);
  cache.add(std::vector{6}, runner.of({6, 7, 8, 9, 10}));  // alone it is too large
  EXPECT_EQ(cache.states(), 0);
  EXPECT_EQ(cache.bytes(), 0);
}

// A full cache of many small states would else cost more than the texts.
TEST(PrefixCache, AFullCacheIsNotCountedAgain) {
  Pieces runner;
  PrefixCache cache(runner, 100 * 104);
  for (int i = 0; i < 2000; ++i) cache.add(std::vector{i}, runner.of({i}));
  EXPECT_EQ(cache.states(), 100);
  EXPECT_LE(runner.asked, 2 * 2000);
}

}  // namespace
}  // namespace horner
