#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/check.h"

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

// A paired difference over examples has the unit of the difference over seeds.
TEST(Evaluate, ExamplesAreScoredInTheUnitOfTheMetric) {
  const TargetBatch c = by_hand();  // 3 and 1 targets, 5 bytes of text
  ScoreSum sum("bits per byte");
  sum.add(c, said(c, {1, 0, 1, 2}, 2));
  const Scores s = sum.scores();
  const double right = std::log(1 + 2 * std::exp(-2)), wrong = right + 2;
  const double unit = 4.0 / 5 / std::numbers::ln2;
  ASSERT_EQ(s.by_example.size(), 2);
  EXPECT_NEAR(s.by_example[0], (right + 2 * wrong) / 3 * unit, 1e-6);
  EXPECT_NEAR(s.by_example[1], right * unit, 1e-6);
  EXPECT_NEAR((3 * s.by_example[0] + s.by_example[1]) / 4, s.values.at("bits per byte"), 1e-6);
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

// A CPU computes a large batch in pieces, so that it hears Ctrl-C; the scores are those of the whole.
TEST(Evaluate, PiecesOfABatchHaveItsScores) {
  for (const char* text :
       {"mqar:T=1024,pairs=8,vocabulary=2048,test=5",
        "needle:T=1024,test=5",
        "listops:above=10,below=1500,depth=4,test=5"}) {
    const auto task = make_task(text);
    const TaskShape shape = task->shape();
    ModelOptions o;
    o.D = 16;
    o.vocabulary = shape.vocabulary;
    o.classes = shape.classes;
    if (!shape.causal) o.pattern = {"softmax:causal=false"};
    const auto model = make_model(o, 3);
    const Scores one = evaluate(*model, *task, Split::test, {0, 1, false}, at::kCPU);
    const Scores all = evaluate(*model, *task, Split::test, {0, 5, false}, at::kCPU);
    EXPECT_EQ(all.examples, 5);
    ASSERT_EQ(all.by_example.size(), one.by_example.size());
    for (size_t i = 0; i < one.by_example.size(); ++i)
      EXPECT_NEAR(all.by_example[i], one.by_example[i], 1e-5) << text;
    for (const auto& [name, value] : one.values)
      EXPECT_NEAR(all.values.at(name), value, 1e-5) << text << " " << name;
  }
}

TEST(Evaluate, AsksBetweenLayers) {
  const auto task = make_task("mqar:T=16,pairs=2,vocabulary=32,test=2");
  ModelOptions o;
  o.layers = 5;
  o.D = 16;
  o.vocabulary = 32;
  const auto model = make_model(o, 3);
  int64_t asked = 0, most = 100;
  EvaluateOptions e{0, 2, false};
  e.stop = [&] { return ++asked > most; };
  evaluate(*model, *task, Split::test, e, at::kCPU);
  EXPECT_EQ(asked, 2 + 5);  // the batch, its piece, the layers
  asked = 0, most = 4;
  EXPECT_THROW(evaluate(*model, *task, Split::test, e, at::kCPU), InterruptedError);
  EXPECT_EQ(asked, 5);  // in the third layer
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
