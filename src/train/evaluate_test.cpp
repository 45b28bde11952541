#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace horner {
namespace {

// Two examples of four positions; the first has three targets and one right, the second one, right.
TargetBatch by_hand() {
  Batch batch;
  batch.tokens = at::zeros({2, 4}, at::kLong);
  batch.targets = at::tensor({1, -100, 2, 0, -100, -100, 2, -100}, at::kLong).view({2, 4});
  batch.slices["depth"] = at::tensor({7, 9}, at::kLong);
  batch.bytes = 5;
  return find_targets(batch);
}

Losses said(const TargetBatch& c, const std::vector<int64_t>& answers, double sureness) {
  Losses l;
  l.predictions = at::zeros({c.count, 3});
  for (int64_t i = 0; i < c.count; ++i) l.predictions[i][answers[size_t(i)]] = sureness;
  l.each = at::cross_entropy_loss(l.predictions, c.answers, {}, at::Reduction::None);
  return l;
}

TEST(Evaluate, MetricsOfHandMadeAnswers) {
  const TargetBatch c = by_hand();
  EXPECT_EQ(c.count, 4);
  EXPECT_EQ(c.tokens, 8);
  const double right = std::log(1 + 2 * std::exp(-2)), wrong = right + 2;
  ScoreSum sum("accuracy");
  sum.add(c, said(c, {1, 0, 1, 2}, 2));
  const Scores s = sum.scores();
  EXPECT_EQ(s.examples, 2);
  EXPECT_NEAR(s.values.at("loss"), (2 * right + 2 * wrong) / 4, 1e-6);
  EXPECT_NEAR(s.values.at("accuracy"), (1.0 / 3 + 1) / 2, 1e-12);
  EXPECT_NEAR(s.values.at("sequence accuracy"), 0.5, 1e-12);
  EXPECT_NEAR(s.values.at("first error"), 1, 1e-12);    // the second example has one answer only
  EXPECT_NEAR(s.values.at("late accuracy"), 0, 1e-12);  // position 3 of the first
  EXPECT_NEAR(s.values.at("bits per byte"), (2 * right + 2 * wrong) / std::numbers::ln2 / 5, 1e-6);
  EXPECT_NEAR(s.values.at("depth/accuracy-7"), 1.0 / 3, 1e-12);
  EXPECT_NEAR(s.values.at("depth/accuracy-9"), 1, 1e-12);
  EXPECT_EQ(s.by_example.size(), 2);
  ASSERT_EQ(s.loss_by_position.size(), 4);
  EXPECT_NEAR(s.loss_by_position[0], right, 1e-6);
  EXPECT_TRUE(std::isnan(s.loss_by_position[1]));
  EXPECT_NEAR(s.loss_by_position[2], (right + wrong) / 2, 1e-6);
  const Scores again = Scores::from(s.json());
  EXPECT_EQ(again.values, s.values);
  EXPECT_EQ(again.by_example, s.by_example);
}

TEST(Evaluate, NumbersHaveAMeanSquare) {
  Batch batch;
  batch.features = at::zeros({1, 3, 2});
  batch.values = at::tensor({1.0, std::nan(""), 3.0}, at::kFloat).view({1, 3});
  const TargetBatch c = find_targets(batch);
  Losses l;
  l.predictions = at::tensor({2.0, 1.0}, at::kFloat);
  l.each = (l.predictions - c.answers).square();
  ScoreSum sum("mse");
  sum.add(c, l);
  EXPECT_NEAR(sum.scores().values.at("mse"), 2.5, 1e-6);
}

TEST(Evaluate, TwoClassesHaveACorrelation) {
  Batch batch;
  batch.tokens = at::zeros({6, 2}, at::kLong);
  batch.labels = at::tensor({1, 1, 1, 0, 0, 1}, at::kLong);
  const TargetBatch c = find_targets(batch);
  const auto of = [&](const std::vector<int64_t>& answers) {
    Losses l;
    l.predictions = at::one_hot(at::tensor(answers, at::kLong), 2).to(at::kFloat);
    l.each = at::cross_entropy_loss(l.predictions, c.answers, {}, at::Reduction::None);
    ScoreSum sum("accuracy");
    sum.add(c, l);
    return sum.scores().values.at("matthews");
  };
  EXPECT_NEAR(of({1, 1, 1, 0, 0, 1}), 1, 1e-12);
  EXPECT_NEAR(of({0, 0, 0, 1, 1, 0}), -1, 1e-12);
  EXPECT_EQ(of({1, 1, 1, 1, 1, 1}), 0);
  EXPECT_NEAR(of({1, 1, 0, 0, 1, 1}), (3 * 1 - 1 * 1) / std::sqrt(4.0 * 4 * 2 * 2), 1e-12);
}

// An answer that is read back is what the model says of the sequence with its own earlier answers.
TEST(Evaluate, FreeRunningReadsItsOwnAnswers) {
  ModelOptions o;
  o.pattern = {"softmax", "mlstm"};
  o.D = 16;
  o.vocabulary = 50;
  o.positions = 12;
  const auto model = make_model(o, 3);
  const c10::NoGradGuard no_graph;
  const at::Tensor tokens = at::randint(50, {5, 12}, at::kLong), said = run_free(*model, tokens, 4);
  for (int64_t t = 8; t < 12; ++t) {
    ModelState state;
    const at::Tensor next = model->forward(tokens, state).select(1, t).argmax(-1);
    EXPECT_TRUE(at::equal(said.select(1, t - 8), next)) << t;
    if (t < 11) tokens.select(1, t + 1).copy_(next);
  }
}

TEST(Evaluate, NeedlesRunFreeToo) {
  const auto task = make_task("needle:T=32,test=20");
  ModelOptions o;
  o.D = 16;
  o.vocabulary = task->shape().vocabulary;
  const auto model = make_model(o, 3);
  const Scores s = evaluate(*model, *task, Split::test, {20, 8, false}, at::kCPU);
  EXPECT_EQ(s.values.count("free-running accuracy"), 1);
  EXPECT_EQ(s.values.count("free-running sequence accuracy"), 1);
}

// Logits at the places that count are those of the whole sequence.
TEST(Evaluate, TheHeadReadsOnlyWhatCounts) {
  ModelOptions o;
  o.D = 16;
  o.vocabulary = 3;
  const auto model = make_model(o, 1);
  const TargetBatch c = by_hand();
  ModelState state;
  const at::Tensor all = model->forward(c.batch.tokens, state).flatten(0, 1);
  const Losses l = losses(*model, c);
  EXPECT_TRUE(at::allclose(l.predictions, all.index_select(0, c.places), 1e-5, 1e-6));
}

}  // namespace
}  // namespace horner
