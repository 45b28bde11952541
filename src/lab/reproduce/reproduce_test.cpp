// Verdicts on made-up scores, and that every claim of every paper can be set up.
#include "lab/reproduce/reproduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "core/check.h"

namespace horner {
namespace {

using E = Expectation;

const std::vector<ArmScores> kRows = {
    {"good", {0.90, 0.91, 0.92}},
    {"also good", {0.905, 0.908, 0.921}},
    {"bad", {0.50, 0.52, 0.51}},
    {"noisy", {0.2, 0.9, 0.6}},
    {"half", {0.51, NAN, 0.5}, false, 0, 0, 0, "stopped"},
    {"failed", {NAN, NAN, NAN}, false, 0, 0, 0, "no data"}};

TEST(Reproduce, VerdictFollowsTheInterval) {
  const auto verdict = [](const E& e) { return judge(e, kRows).verdict; };
  EXPECT_EQ(verdict({E::above, "good", "bad"}), Verdict::holds);
  EXPECT_EQ(verdict({E::above, "bad", "good"}), Verdict::does_not_hold);
  EXPECT_EQ(verdict({E::above, "noisy", "bad"}), Verdict::not_shown);
  EXPECT_EQ(verdict({E::near, "good", "also good", 0.02}), Verdict::holds);
  EXPECT_EQ(verdict({E::near, "good", "bad", 0.02}), Verdict::does_not_hold);
  EXPECT_EQ(verdict({E::reaches, "good", "", 0.8}), Verdict::holds);
  EXPECT_EQ(verdict({E::under, "good", "", 0.8}), Verdict::does_not_hold);
  EXPECT_EQ(verdict({E::above, "good", "failed"}), Verdict::not_shown);
  EXPECT_EQ(verdict({E::near, "half", "bad", 0.2}), Verdict::holds);  // by the seeds that both have
  EXPECT_NEAR(judge({E::above, "half", "bad"}, kRows).value.mean, 0, 1e-9);
  EXPECT_THROW(judge({E::above, "good", "nobody"}, kRows), UsageError);
}

TEST(Reproduce, OneSeedShowsNothing) {
  const std::vector<ArmScores> rows = {{"a", {0.9}}, {"b", {0.1}}};
  EXPECT_EQ(judge({E::above, "a", "b"}, rows).verdict, Verdict::not_shown);
}

TEST(Reproduce, AClaimIsAsGoodAsItsWorstExpectation) {
  const auto of = [](Verdict v) { return Judgement{"", {}, v}; };
  EXPECT_EQ(overall({}), Verdict::not_shown);
  EXPECT_EQ(overall({of(Verdict::holds), of(Verdict::holds)}), Verdict::holds);
  EXPECT_EQ(overall({of(Verdict::holds), of(Verdict::not_shown)}), Verdict::not_shown);
  EXPECT_EQ(overall({of(Verdict::not_shown), of(Verdict::does_not_hold)}), Verdict::does_not_hold);
}

// An expectation names arms that there are; every arm's mixers can be made.
TEST(Reproduce, ClaimsAreWhole) {
  for (const Paper& paper : papers()) {
    for (const Claim& claim : paper.claims) {
      ASSERT_FALSE(claim.arms == nullptr && claim.measure == nullptr) << paper.name << claim.name;
      if (claim.arms == nullptr) continue;
      for (const Effort scale : {Effort::cpu, Effort::gpu}) {
        std::set<std::string> labels;
        for (const Arm& arm : claim.arms(scale)) {
          EXPECT_TRUE(arm.after.empty() || labels.contains(arm.after)) << arm.after;
          EXPECT_TRUE(labels.insert(arm.label).second) << arm.label;
          for (const std::string& mixer : arm.options.model.pattern) {
            EXPECT_NO_THROW(make_mixer(MixerSpec::parse(mixer), arm.options.model.D))
                << paper.name << " " << claim.name << " " << mixer;
          }
        }
        if (claim.measure != nullptr) continue;
        for (const Expectation& e : claim.expects) {
          EXPECT_TRUE(labels.contains(e.a)) << e.a;
          EXPECT_TRUE(e.b.empty() || labels.contains(e.b)) << e.b;
        }
      }
    }
  }
}

// The claims that need no training.
TEST(Reproduce, ComputedClaimsHold) {
  for (const auto& [paper, claim] :
       {std::pair{"inline", "injectivity"}, {"metala", "conditions"}}) {
    ReproduceOptions o;
    o.claim = {claim};
    const auto all = reproduce({&find_paper(paper)}, o, "", {});
    ASSERT_EQ(all.at(0).findings.size(), 1u);
    for (const Judgement& j : all[0].findings[0].judgements)
      EXPECT_EQ(j.verdict, Verdict::holds) << j.text;
  }
}

// A finding survives its file; a new one replaces that of the same claim and scale only.
TEST(Reproduce, FindingsAdd) {
  const auto finding = [](const std::string& claim, const std::string& scale, double score) {
    Finding f{claim, "says", "setting", "test/loss", scale, "CPU", "abc", "today"};
    f.rows = {{"a", {score, score}}, {"failed", {}, false, 1, 2, 3, "why"}};
    f.judgements = {{"a > 0", {score, NAN, 1}, Verdict::does_not_hold}};
    f.verdict = Verdict::does_not_hold;
    return f;
  };
  const Paper& paper = find_paper("taylor");
  const Reproduction earlier{
      &paper,
      {finding("orders", "cpu", 1), finding("orders", "gpu", 2), finding("norm", "cpu", 3)}};
  Reproduction now{&paper, {finding("norm", "cpu", 4)}};
  now.add(Json::parse(earlier.json().dump()));
  ASSERT_EQ(now.findings.size(), 3u);
  EXPECT_EQ(now.findings[0].json().dump(), earlier.findings[1].json().dump());
  EXPECT_EQ(now.findings[1].json().dump(), earlier.findings[0].json().dump());
  EXPECT_EQ(now.findings[2].rows[0].scores[0], 4);
}

TEST(Reproduce, EarlierFindingsAreJudgedAgain) {
  const Paper paper{
      "p", "0", "t", {{"c", "says now", "here", "test/loss", {{E::above, "a", "b"}}, 3}}};
  Finding f{"c", "said", "here", "test/loss", "cpu"};
  f.rows = {{"a", {-1, -1.01, -1.02}}, {"b", {-2, -2.01, -2.0}}};
  f.judgements = {{"a - b > 0", {1, 0.1, 3}, Verdict::not_shown}};
  Reproduction now{&paper, {}};
  now.add(Reproduction{&paper, {f}}.json());
  EXPECT_EQ(now.findings.at(0).verdict, Verdict::holds);
  EXPECT_EQ(now.findings[0].judgements.at(0).text, "a better than b");
  EXPECT_EQ(now.findings[0].says, "says now");
  f.rows.pop_back();  // the claim asks for an arm that it has not
  Reproduction other{&paper, {}};
  other.add(Reproduction{&paper, {f}}.json());
  EXPECT_EQ(other.findings.at(0).judgements.at(0).text, "a - b > 0");
}

TrainOptions small(const std::string& mixer) {
  TrainOptions o;
  o.task = "mqar:T=16,pairs=2,vocabulary=32";
  o.model.pattern = {mixer};
  o.model.layers = 1;
  o.model.D = 16;
  o.model.mlp = "none";
  o.schedule.steps = 3;
  o.train.batch = 4;
  o.eval.every = 0;
  o.eval.examples = 16;
  return o;
}

// The first seed tries both rates; the one that learns is that of the second seed.
TEST(Reproduce, LearningRateIsThatOfTheFirstSeed) {
  const auto arms = [](Effort) -> std::vector<Arm> {
    TrainOptions o = small("softmax");
    o.optim.lr = 0.02;
    return {{"softmax", o}};
  };
  const std::vector<double> rates = {1e-6, 1};
  const Paper paper{"p", "0", "t", {{"c", "s", "s", "test/loss", {}, 2, arms, nullptr, rates}}};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_rates";
  std::filesystem::remove_all(o.runs);
  const Finding f = reproduce({&paper}, o, "", {})[0].findings.at(0);
  EXPECT_EQ(f.rows.at(0).known().size(), 2u) << f.rows[0].failure;
  EXPECT_DOUBLE_EQ(f.rows[0].lr, 0.02);
  EXPECT_EQ(
      std::distance(
          std::filesystem::directory_iterator(o.runs), std::filesystem::directory_iterator()
      ),
      3
  );
}

// Small claims through the whole way: arms that begin with another's weights, `read`, equal runs once.
TEST(Reproduce, TrainsReadsAndBegins) {
  const auto arms = [](Effort) -> std::vector<Arm> {
    return {
        {"softmax", small("softmax")},
        {"same", small("softmax")},
        {"after", small("linear"), "softmax"}};
  };
  const Paper paper{
      "p", "0", "t", {{"c", "s", "s", "test/loss", {{E::near, "same", "softmax", 1e-9}}, 2, arms}}};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_runs";
  std::filesystem::remove_all(o.runs);
  o.read = true;
  EXPECT_TRUE(reproduce({&paper}, o, "", {})[0].findings.empty());  // nothing has finished
  o.read = false;
  int64_t runs = 0;
  const auto trained =
      reproduce({&paper}, o, "", [&](const RunsTick& t) { runs = std::max(runs, t.runs); });
  EXPECT_EQ(runs, 2);  // two seeds of softmax; then two of what begins with them
  const Finding& f = trained[0].findings[0];
  EXPECT_EQ(f.verdict, Verdict::holds) << f.rows[0].failure;
  ASSERT_EQ(f.rows[2].scores.size(), 2u) << f.rows[2].failure;
  o.read = true;
  EXPECT_EQ(reproduce({&paper}, o, "", {})[0].findings[0].rows[2].scores, f.rows[2].scores);
}

}  // namespace
}  // namespace horner
