#include "model/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/check.h"
#include "core/random.h"
#include "core/thrown_test.h"

namespace horner {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

int32_t one(const SamplingOptions& o, const std::vector<float>& x, size_t position) {
  return TokenSampler(o).sample(x, std::vector<int32_t>(position, 0)).token;
}

// How often each token comes at n positions.
std::map<int32_t, int64_t> counts(
    const SamplingOptions& o, const std::vector<float>& x, int64_t n
) {
  std::map<int32_t, int64_t> count;
  TokenSampler sampler(o);
  std::vector<int32_t> before;
  for (int64_t i = 0; i < n; ++i) {
    ++count[sampler.sample(x, before).token];
    before.push_back(0);
  }
  return count;
}

std::set<int32_t> tokens(const std::map<int32_t, int64_t>& count) {
  std::set<int32_t> set;
  for (const auto& [token, n] : count) set.insert(token);
  return set;
}

std::vector<float> logs(const std::vector<double>& p) {
  std::vector<float> x;
  for (const double value : p) x.push_back(float(std::log(value)));
  return x;
}

// Pearson's statistic against probabilities.
double chi_square(
    const std::map<int32_t, int64_t>& count, const std::vector<double>& p, int64_t n
) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const auto found = count.find(int32_t(i));
    const double seen = found == count.end() ? 0 : double(found->second), due = p[i] * double(n);
    sum += (seen - due) * (seen - due) / due;
  }
  return sum;
}

SamplingOptions plain() {
  SamplingOptions o;
  o.temperature = 1;
  return o;
}

TEST(Sampling, FollowsTheDistribution) {
  const std::vector<double> p = {0.4, 0.3, 0.15, 0.1, 0.05};
  constexpr int64_t kDraws = 20000;
  // 4 degrees of freedom: above 18.5 in one of a thousand runs; the seed is fixed.
  EXPECT_LT(chi_square(counts(plain(), logs(p), kDraws), p, kDraws), 18.5);
  SamplingOptions sharp = plain();
  sharp.temperature = 0.5;  // p^2 / sum
  std::vector<double> squares;
  double sum = 0;
  for (const double x : p) sum += x * x;
  for (const double x : p) squares.push_back(x * x / sum);
  EXPECT_LT(chi_square(counts(sharp, logs(p), kDraws), squares, kDraws), 18.5);
}

// u is Philox of (position, seed), and the token is where the running sum of p passes u.
TEST(Sampling, TokenIsAFunctionOfSeedAndPosition) {
  const std::vector<double> p = {0.1, 0.2, 0.3, 0.4};
  for (const int64_t seed : {0, 7, -1}) {
    SamplingOptions o = plain();
    o.seed = seed;
    for (size_t position = 0; position < 50; ++position) {
      const Words w = philox({uint32_t(position), 0, 0, 0x73616d70}, uint64_t(seed));
      const double u = (double(w[0]) + double(w[1]) / 0x1p32) / 0x1p32;
      double sum = 0;
      int32_t expected = 0;
      while ((sum += p[size_t(expected)]) <= u) ++expected;
      EXPECT_EQ(one(o, logs(p), position), expected);
      EXPECT_NEAR(sampling_uniform(uint64_t(seed), position), u, 1e-12);
    }
  }
}

TEST(Sampling, GreedyTakesTheLargestAndOfEqualsTheFirst) {
  SamplingOptions o;
  o.temperature = 0;
  EXPECT_EQ(one(o, {1, 3, 2}, 0), 1);
  EXPECT_EQ(one(o, {1, 3, 3}, 5), 1);
  EXPECT_EQ(one(o, {kNever, kNever, -1e30f}, 5), 2);
  o.temperature = 1e-30;  // so small that all other weights are 0
  EXPECT_EQ(one(o, {1, 3, 2}, 3), 1);
  o.temperature = 5;
  o.top_k = 1;
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(one(o, {1, 3, 3, 3}, i), 1);
}

TEST(Sampling, FiltersKeepWhatTheirFormulasSay) {
  const std::vector<float> x = logs({0.05, 0.4, 0.2, 0.05, 0.3});
  const auto kept = [&](auto&& change) {
    SamplingOptions o = plain();
    change(o);
    return tokens(counts(o, x, 4000));
  };
  using Set = std::set<int32_t>;
  EXPECT_EQ(kept([](auto&) {}), (Set{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_k = 2; }), (Set{1, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_k = 4; }), (Set{0, 1, 2, 4}));  // 0 and 3 are equal
  EXPECT_EQ(kept([](auto& o) { o.top_p = 0.39; }), (Set{1}));
  EXPECT_EQ(kept([](auto& o) { o.top_p = 0.41; }), (Set{1, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_p = 0.89; }), (Set{1, 2, 4}));
  EXPECT_EQ(kept([](auto& o) { o.min_p = 0.6; }), (Set{1, 4}));  // 0.3 / 0.4 is above, 0.5 below
  // The share is of what top_k left: 0.4 / 0.7 is above 0.5.
  EXPECT_EQ(kept([](auto& o) { o.top_k = 2, o.top_p = 0.5; }), (Set{1}));
  EXPECT_EQ(kept([](auto& o) { o.logit_bias = {"1:-inf", "4:-inf"}; }), (Set{0, 2, 3}));
  EXPECT_EQ(kept([](auto& o) { o.logit_bias = {"3:50"}; }), (Set{3}));
}

// Over hundreds of tokens the nucleus is found in pieces; a full sort is the oracle.
TEST(Sampling, NucleusOfALargeVocabulary) {
  constexpr size_t kTokens = 800;
  std::vector<float> x(kTokens);
  Random random(5, Split::test, Stream::noise, 0);
  for (float& value : x) value = float(random.normal());
  std::vector<std::pair<double, int32_t>> sorted;
  double total = 0, sum = 0;
  for (size_t i = 0; i < kTokens; ++i) {
    sorted.emplace_back(-std::exp(double(x[i])), int32_t(i));
    total -= sorted.back().first;
  }
  std::sort(sorted.begin(), sorted.end());
  std::set<int32_t> nucleus;
  for (const auto& [weight, id] : sorted) {
    nucleus.insert(id);
    if ((sum -= weight) >= 0.6 * total) break;
  }
  ASSERT_GT(nucleus.size(), 150U);
  SamplingOptions o = plain();
  o.top_p = 0.6;
  std::set<int32_t> seen = tokens(counts(o, x, 5000));
  EXPECT_TRUE(std::includes(nucleus.begin(), nucleus.end(), seen.begin(), seen.end()));
  EXPECT_GT(seen.size(), nucleus.size() * 9 / 10);
}

// CTRL's rule: positive logits are divided, negative ones multiplied; each token once.
TEST(Sampling, RepetitionPenalty) {
  SamplingOptions o;
  o.temperature = 0;
  o.repetition_penalty = 2;
  const std::vector<int32_t> before = {0, 0, 0, 3};
  EXPECT_EQ(
      TokenSampler(o).sample(std::vector<float>{3, 1.6f, 1, 1}, before).token, 1
  );  // 1.5, 1.6
  EXPECT_EQ(
      TokenSampler(o).sample(std::vector<float>{3, 1.4f, 1, 1}, before).token, 0
  );  // once: 1.5
  EXPECT_EQ(TokenSampler(o).sample(std::vector<float>{-1, -1.5f, -9, -9}, before).token, 1);
  EXPECT_EQ(TokenSampler(o).sample(std::vector<float>{-1, -2.5f, -9, -9}, before).token, 0);
}

// Each token of the text once, or once for each time; the prompt {0, 0, 0} does not count.
TEST(Sampling, PresenceAndFrequencyPenalties) {
  const std::vector<float> x = {3, 2.5f, 1.75f, 0};
  const auto after = [&](double presence, double frequency, const std::vector<int32_t>& text) {
    SamplingOptions o;
    o.temperature = 0;
    o.presence_penalty = presence;
    o.frequency_penalty = frequency;
    TokenSampler sampler(o);
    std::vector<int32_t> before = {0, 0, 0};
    EXPECT_EQ(sampler.sample(x, before).token, 0);
    before.insert(before.end(), text.begin(), text.end());
    return sampler.sample(x, before).token;
  };
  EXPECT_EQ(after(0, 0, {0, 0}), 0);
  EXPECT_EQ(after(0.4, 0, {0, 0}), 0);              // 2.6, 2.5
  EXPECT_EQ(after(0.6, 0, {0, 0}), 1);              // 2.4, 2.5
  EXPECT_EQ(after(0, 0.4, {0}), 0);                 // 2.6, 2.5
  EXPECT_EQ(after(0, 0.4, {0, 0}), 1);              // 2.2, 2.5
  EXPECT_EQ(after(0, 0.4, {0, 1, 1, 0, 0, 0}), 2);  // 1.4, 1.7, 1.75
  EXPECT_EQ(after(-2, 0, {2}), 2);                  // 3.75
}

TEST(Sampling, LogprobsAreThoseOfTheModel) {
  SamplingOptions o = plain();
  o.temperature = 0.3;
  o.logprobs = 2;
  o.logit_bias = {"0:40"};
  const SampledToken sampled = TokenSampler(o).sample(logs({0.1, 0.5, 0.4}), {});
  EXPECT_EQ(sampled.token, 0);
  EXPECT_NEAR(sampled.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(sampled.top.size(), 2U);
  EXPECT_EQ(sampled.top[0].token, 1);
  EXPECT_NEAR(sampled.top[0].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(sampled.top[1].token, 2);
  o.logprobs = 9;  // more than there are
  EXPECT_EQ(TokenSampler(o).sample(logs({0.1, 0.5, 0.4}), {}).top.size(), 3U);
}

// Greedy and sampled, only what is allowed is taken; log-probabilities stay those of the model.
TEST(Sampling, AMaskAllowsTokens) {
  const std::vector<float> x = {5, 4, 3, 2, 1};
  const uint64_t allowed[] = {0b01100};
  SamplingOptions o = plain();
  EXPECT_EQ(
      tokens([&] {
        std::map<int32_t, int64_t> count;
        TokenSampler sampler(o);
        for (size_t i = 0; i < 200; ++i)
          ++count[sampler.sample(x, std::vector<int32_t>(i, 0), allowed).token];
        return count;
      }()),
      (std::set<int32_t>{2, 3})
  );
  o.temperature = 0;
  o.logprobs = 1;
  const SampledToken greedy = TokenSampler(o).sample(x, {}, allowed);
  EXPECT_EQ(greedy.token, 2);
  EXPECT_EQ(greedy.logprob, logprob_of(x, 2));
  EXPECT_EQ(greedy.top[0].token, 0);
  const uint64_t none[] = {0};
  EXPECT_EQ(TokenSampler(o).sample(x, {}, none).token, -1);
  o.logit_bias = {"2:-inf", "3:-inf"};
  EXPECT_EQ(TokenSampler(o).sample(x, {}, allowed).token, -1);
  EXPECT_EQ(TokenSampler(plain()).sample(std::vector<float>(100, 0.F), {}, none).token, -1);
}

TEST(Sampling, BadLogitsAndSettingsAreSaid) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(one(plain(), {0, inf, 0}, 3), 1);
  EXPECT_EQ(
      thrown<RunError>([] {
        one(plain(), {kNever, kNever}, 0);
      }),
      "no token is possible: all 2 logits are -inf"
  );
  EXPECT_EQ(
      thrown<RunError>([] {
        one(plain(), {0, std::nanf("")}, 0);
      }),
      "the model's logit of token 1 is not a number"
  );
  const auto refused = [](auto&& change) {
    SamplingOptions o;
    change(o);
    return thrown<UsageError>([&] { TokenSampler{o}; });
  };
  EXPECT_EQ(refused([](auto& o) { o.temperature = -1; }), "temperature must be at least 0, got -1");
  EXPECT_EQ(refused([](auto& o) { o.top_k = -1; }), "top_k must be at least 0, got -1");
  EXPECT_EQ(refused([](auto& o) { o.top_p = 0; }), "top_p must be above 0 and at most 1, got 0");
  EXPECT_EQ(refused([](auto& o) { o.min_p = 2; }), "min_p must be in 0 .. 1, got 2");
  EXPECT_EQ(
      refused([](auto& o) { o.repetition_penalty = 0; }),
      "repetition_penalty must be above 0, got 0"
  );
  for (const char* text : {"", "3", "x:1", "3:", "3:x", "-1:2", "3:nan", "3:inf", "3:1x"}) {
    const std::string line =
        fmt::format("logit_bias must be token id:number, as 17:-2.5, got '{}'", text);
    EXPECT_EQ(refused([&](auto& o) { o.logit_bias = {text}; }), line);
  }
  SamplingOptions o = plain();
  o.logit_bias = {"3:1"};
  EXPECT_EQ(
      thrown<UsageError>([&] {
        one(o, {0, 1}, 0);
      }),
      "logit_bias: there is no token 3; the vocabulary has 2"
  );
}

}  // namespace
}  // namespace horner
