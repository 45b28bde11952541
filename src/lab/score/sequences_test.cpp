#include "lab/score/sequences.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"

namespace horner {
namespace {

constexpr int64_t kVocabulary = 13;

std::shared_ptr<Model> model_of(const std::string& mixer, uint64_t seed) {
  ModelOptions o;
  o.pattern = {mixer};
  o.D = 16;
  o.vocabulary = kVocabulary;
  o.init = "torch";  // large weights: probabilities that differ
  auto model = make_model(o, seed);
  model->eval();
  return model;
}

std::vector<Sequence> sequences_of(std::vector<int64_t> lengths) {
  at::manual_seed(5);
  std::vector<Sequence> list;
  for (const int64_t length : lengths) {
    const at::Tensor x = at::randint(kVocabulary, {length}, at::kLong);
    const int64_t* ids = x.data_ptr<int64_t>();
    list.push_back({{ids, ids + length}, 1 + length / 3});
  }
  return list;
}

std::vector<SequenceScores> scores_of(
    Model& model, Model* against, const std::vector<Sequence>& sequences, int64_t batch_tokens
) {
  return score_sequences(model, against, sequences, batch_tokens, at::kCPU, {});
}

// log p of every token after each position of one sequence, read alone.
std::vector<std::vector<double>> log_probabilities(Model& model, const Sequence& s) {
  const c10::NoGradGuard no_graph;
  ModelState state;
  const at::Tensor logits = model.forward(at::tensor(s.tokens).unsqueeze(0), state)[0];
  std::vector<std::vector<double>> rows;
  for (int64_t t = 0; t < logits.size(0); ++t) {
    std::vector<double> row;
    double sum = 0;
    for (int64_t y = 0; y < kVocabulary; ++y) row.push_back(logits[t][y].item<double>());
    for (const double x : row) sum += std::exp(x);
    for (double& x : row) x -= std::log(sum);
    rows.push_back(row);
  }
  return rows;
}

TEST(ScoreSequences, AreThoseOfEachSequenceAlone) {
  const auto model = model_of("gla:heads=2", 1), other = model_of("softmax:heads=2", 2);
  const std::vector<Sequence> sequences = sequences_of({7, 2, 30, 12, 30, 3});
  const std::vector<SequenceScores> scores = scores_of(*model, other.get(), sequences, 64);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    const auto p = log_probabilities(*model, s), q = log_probabilities(*other, s);
    ASSERT_EQ(int64_t(scores[i].model.nats.size()), s.scored());
    for (size_t j = 0; j < scores[i].model.nats.size(); ++j) {
      const size_t t = size_t(s.first) + j - 1, target = size_t(s.tokens[t + 1]);
      const auto top = [&](const auto& row) {
        return size_t(std::max_element(row.begin(), row.end()) - row.begin());
      };
      double kl = 0;
      for (size_t y = 0; y < size_t(kVocabulary); ++y)
        kl += std::exp(q[t][y]) * (q[t][y] - p[t][y]);
      EXPECT_NEAR(scores[i].model.nats[j], -p[t][target], 1e-5);
      EXPECT_NEAR(scores[i].against.nats[j], -q[t][target], 1e-5);
      EXPECT_NEAR(scores[i].kl[j], kl, 1e-5);
      EXPECT_EQ(scores[i].model.top[j], top(p[t]) == target);
      EXPECT_EQ(scores[i].same_top[j], top(p[t]) == top(q[t]));
    }
  }
}

TEST(ScoreSequences, DoNotDependOnTheBatch) {
  const auto model = model_of("softmax:heads=2", 3);
  const std::vector<Sequence> sequences = sequences_of({4, 9, 17, 5, 17, 2, 31});
  const auto alone = scores_of(*model, nullptr, sequences, 1);
  const auto together = scores_of(*model, nullptr, sequences, 1 << 20);
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_NEAR(alone[i].model.sum(), together[i].model.sum(), 1e-4);
    EXPECT_TRUE(alone[i].kl.empty());
  }
}

TEST(ScoreSequences, AModelIsAtDistanceZeroFromItself) {
  const auto model = model_of("mlstm:heads=2", 3);
  for (const SequenceScores& s : scores_of(*model, model.get(), sequences_of({20, 8}), 100)) {
    for (size_t j = 0; j < s.kl.size(); ++j) {
      EXPECT_NEAR(s.kl[j], 0, 1e-6);
      EXPECT_TRUE(s.same_top[j]);
    }
  }
}

TEST(ScoreSequences, RefuseASequenceWithNothingToScore) {
  const auto model = model_of("gla:heads=2", 1);
  EXPECT_THROW(scores_of(*model, nullptr, {{{1, 2}, 2}}, 100), UsageError);
  EXPECT_THROW(scores_of(*model, nullptr, {{{1, 2}, 0}}, 100), UsageError);
}

TEST(ScoreSequences, RefuseAModelWhoseProbabilitiesAreNoNumbers) {
  const auto good = model_of("gla", 1), bad = model_of("gla", 1);
  const c10::NoGradGuard no_graph;
  bad->parameters()[0].fill_(std::nan(""));
  const auto sequences = sequences_of({9});
  EXPECT_THROW(scores_of(*bad, nullptr, sequences, 64), RunError);
  EXPECT_THROW(scores_of(*good, bad.get(), sequences, 64), RunError);
}

}  // namespace
}  // namespace horner
