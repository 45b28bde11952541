// Verdicts on made-up scores, and that every claim of every paper can be set up.
#include "lab/reproduce/reproduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
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
    {"half", {0.51, NAN, 0.5}, false, 0, 0, 0, kUnfinished},
    {"diverged", {0.51, NAN, 0.5}, false, 0, 0, 0, "the loss is not finite"},
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
  EXPECT_EQ(verdict({E::above, "good", "failed"}), Verdict::untested);
  EXPECT_EQ(judge({E::above, "good", "failed"}, kRows).reason, "failed: no data");
  EXPECT_EQ(verdict({E::near, "half", "bad", 0.2}), Verdict::holds);  // by the seeds that both have
  EXPECT_EQ(
      judge({E::above, "good", "diverged"}, kRows).reason,  // not by the seeds that survived
      "diverged: 1 of 3 seeds failed: the loss is not finite"
  );
  EXPECT_NEAR(judge({E::above, "half", "bad"}, kRows).value.mean, 0, 1e-9);
  EXPECT_THROW(judge({E::above, "good", "nobody"}, kRows), UsageError);
}

TEST(Reproduce, OneSeedShowsNothing) {
  const std::vector<ArmScores> rows = {{"a", {0.9}}, {"b", {0.1}}};
  EXPECT_EQ(judge({E::above, "a", "b"}, rows).verdict, Verdict::untested);
}

TEST(Reproduce, AClaimIsAsGoodAsItsWorstExpectation) {
  const auto of = [](Verdict v) { return Judgement{"", {}, v}; };
  EXPECT_EQ(overall({}), Verdict::measured);  // nothing was expected
  EXPECT_EQ(overall({of(Verdict::holds), of(Verdict::holds)}), Verdict::holds);
  EXPECT_EQ(overall({of(Verdict::holds), of(Verdict::not_shown)}), Verdict::not_shown);
  EXPECT_EQ(overall({of(Verdict::not_shown), of(Verdict::does_not_hold)}), Verdict::does_not_hold);
  EXPECT_EQ(overall({of(Verdict::not_shown), of(Verdict::untested)}), Verdict::untested);
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
  const Paper paper{"p", "0", "t", {{"orders", "s", "s", "s", {}}, {"norm", "s", "s", "s", {}}}};
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
      "p", "0", "t", {{"c", "says now", "here", "test/loss", {{E::above, "a", "b"}}}}};
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

// A seed of its own tries both rates; the one that learns is that of the judged seeds, and of those that confirm.
TEST(Reproduce, LearningRateIsThatOfTheSearch) {
  const auto arms = [](Effort) -> std::vector<Arm> {
    TrainOptions o = small("softmax");
    o.optim.lr = 0.02;
    return {{"softmax", o}};
  };
  const std::vector<double> rates = {1e-6, 1};
  const Paper paper{
      "p", "0", "t", {{"c", "s", "s", "test/loss", {}, {.seeds = 2, .rates = rates}, arms}}};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_rates";
  std::filesystem::remove_all(o.runs);
  const Finding f = reproduce({&paper}, o, "", {})[0].findings.at(0);
  EXPECT_EQ(f.rows.at(0).known().size(), 2u) << f.rows[0].failure;
  EXPECT_DOUBLE_EQ(f.rows[0].lr, 0.02);
  const auto folders = [&] {
    return std::distance(
        std::filesystem::directory_iterator(o.runs), std::filesystem::directory_iterator()
    );
  };
  EXPECT_EQ(folders(), 4);
  o.confirm = true;
  EXPECT_DOUBLE_EQ(reproduce({&paper}, o, "", {})[0].findings.at(0).rows.at(0).lr, 0.02);
  EXPECT_EQ(folders(), 6);
}

// Three rates: all of them for a quarter of the steps, the better two to the end, and one beyond the edge where the best is.
TEST(Reproduce, RatesAreHalvedAndWidened) {
  const auto arms = [](Effort) -> std::vector<Arm> {
    TrainOptions o = small("softmax");
    o.optim.lr = 1e-3;
    o.schedule.steps = 8;
    return {{"softmax", o}};
  };
  const Paper paper{
      "p", "0", "t", {{"c", "s", "s", "test/loss", {}, {.seeds = 2, .rates = {.01, .1, 1}}, arms}}};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_halving";
  std::filesystem::remove_all(o.runs);
  const Finding f = reproduce({&paper}, o, "", {})[0].findings.at(0);
  EXPECT_EQ(f.rows.at(0).known().size(), 2u) << f.rows[0].failure;
  EXPECT_GE(f.rows[0].lr, 1e-3);              // so small that the largest learns most
  std::map<int64_t, std::set<double>> rates;  // by steps
  std::set<double> first;                     // of the search, to the end
  for (const auto& folder : std::filesystem::directory_iterator(o.runs)) {
    const TrainOptions run = read_result(folder.path()).options;
    rates[run.schedule.steps].insert(run.optim.lr);
    if (run.seed == 500 && run.schedule.steps == 8) first.insert(run.optim.lr);
  }
  EXPECT_TRUE(first.contains(1e-4) && first.contains(1e-3));  // not only their quarters
  EXPECT_EQ(rates[2].size(), 3u);
  EXPECT_FALSE(rates[8].contains(1e-5));  // dropped
  EXPECT_GT(*rates[8].rbegin(), 5e-3);    // beyond the highest
}

// An arm that still guesses after the search would make its claim untested: the seeds are not run. Where the paper says that it
// guesses, they are.
TEST(Reproduce, NoSeedsOfAnArmThatGuesses) {
  const auto arms = [](Effort) -> std::vector<Arm> {
    TrainOptions o = small("softmax");
    o.optim.lr = 1e-9;
    o.schedule.steps = 8;
    return {{"a", o}, {"b", o}};
  };
  Claim claim{"c", "s", "s", "test/accuracy", {{E::above, "a", "b"}}, {}, arms};
  claim.protocol = {.seeds = 6, .rates = {.5, 1, 2}, .chance = 0.5};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_guesses";
  const auto runs = [&](const Claim& c, const std::string& guessing) {
    const Paper paper{"p", "0", "t", {c}};
    std::filesystem::remove_all(o.runs);
    const Finding f = reproduce({&paper}, o, "", {})[0].findings.at(0);
    EXPECT_EQ(f.verdict, Verdict::untested);
    EXPECT_EQ(f.rows.at(0).scores.size(), 1u);
    EXPECT_EQ(f.reason.find(guessing + " guesses after the search of its learning rate ("), 0u)
        << f.reason;
    Reproduction again{&paper, {}};
    again.add(Reproduction{&paper, {f}}.json());
    EXPECT_EQ(again.findings.at(0).verdict, Verdict::untested);
    std::set<int64_t> seeds;
    for (const auto& folder : std::filesystem::directory_iterator(o.runs))
      seeds.insert(read_result(folder.path()).options.seed);
    return seeds.size();
  };
  EXPECT_EQ(runs(claim, "a"), 1u);
  claim.protocol.guessing = {"a"};
  EXPECT_EQ(runs(claim, "b"), 1u);
  claim.expects = {{E::fails, "a", "", 0.5}};  // asked of the seeds
  const Paper paper{"p", "0", "t", {claim}};
  const Finding f = reproduce({&paper}, o, "", {})[0].findings.at(0);
  EXPECT_EQ(f.rows.at(0).scores.size(), 6u);
}

// If every seed has its own best rate, every seed tries all rates for a quarter of the steps.
TEST(Reproduce, EachSeedHalvesItsRates) {
  const auto arms = [](Effort) -> std::vector<Arm> {
    TrainOptions o = small("softmax");
    o.optim.lr = 1e-3;
    o.schedule.steps = 8;
    return {{"softmax", o}};
  };
  const Protocol protocol{.seeds = 2, .rates = {.01, .1, 1}, .rate_each_seed = true};
  const Paper paper{"p", "0", "t", {{"c", "s", "s", "test/loss", {}, protocol, arms}}};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_each_seed";
  std::filesystem::remove_all(o.runs);
  EXPECT_EQ(reproduce({&paper}, o, "", {})[0].findings.at(0).rows.at(0).known().size(), 2u);
  std::map<std::pair<int64_t, int64_t>, int64_t> runs;  // by seed and steps
  for (const auto& folder : std::filesystem::directory_iterator(o.runs)) {
    const TrainOptions run = read_result(folder.path()).options;
    ++runs[{run.seed, run.schedule.steps}];
  }
  for (const int64_t seed : {0, 1}) {
    EXPECT_EQ((runs[{seed, 2}]), 3);
    EXPECT_EQ((runs[{seed, 8}]), 2);
  }
}

// A finished run without the score, as one that diverged on its test: its arm failed, and the other claims are judged.
TEST(Reproduce, ARunWithoutItsScoreHasFailed) {
  const auto arms = [](Effort) -> std::vector<Arm> {
    return {{"a", small("softmax")}, {"b", small("linear")}};
  };
  const Paper paper{
      "p",
      "0",
      "t",
      {{"none", "s", "s", "test_T64/loss", {{E::above, "a", "b"}}, {.seeds = 2}, arms},
       {"some", "s", "s", "test/loss", {{E::above, "a", "b", -100}}, {.seeds = 2}, arms}}};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_no_score";
  std::filesystem::remove_all(o.runs);
  const Reproduction r = reproduce({&paper}, o, "", {})[0];
  EXPECT_EQ(r.findings.at(0).verdict, Verdict::untested);
  EXPECT_EQ(r.findings[0].reason, "a: the run has no score test_T64/loss");
  EXPECT_EQ(r.findings.at(1).verdict, Verdict::holds);
}

// Noise is looked at up to the last look; a clear claim once. Runs of other seeds confirm.
TEST(Reproduce, SeedsAreAddedUntilDecided) {
  const auto arms = [](Effort) -> std::vector<Arm> {
    return {{"a", small("softmax")}, {"b", small("linear")}};
  };
  const Protocol protocol{.seeds = 2, .most = 4};
  const Paper paper{
      "p",
      "0",
      "t",
      {{"open", "s", "s", "test/loss", {{E::above, "a", "b"}}, protocol, arms},
       {"clear", "s", "s", "test/loss", {{E::above, "a", "b", -100}}, protocol, arms}}};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_looks";
  std::filesystem::remove_all(o.runs);
  Reproduction r = reproduce({&paper}, o, "", {})[0];
  EXPECT_EQ(r.findings.at(0).rows.at(0).scores.size(), 4u);
  EXPECT_EQ(r.findings[0].looks, 2);
  EXPECT_EQ(r.findings.at(1).rows.at(0).scores.size(), 2u);
  EXPECT_EQ(r.findings[1].verdict, Verdict::holds);
  o.confirm = true;
  o.claim = {"clear"};
  Reproduction fresh = reproduce({&paper}, o, "", {})[0];
  EXPECT_NE(fresh.findings.at(0).scores(), r.findings[1].scores());
  fresh.add(r.json());
  EXPECT_EQ(fresh.findings.at(1).scores(), r.findings[1].scores());
  EXPECT_EQ(fresh.findings[1].confirmed, "holds on seeds 1000 to 1001");
}

// What was tuned on seeds 0, 1, .. is judged on others, and confirmed on others again. A measure is told which.
TEST(Reproduce, SeedsThatWereLookedAtAreNotJudged) {
  Claim claim{"c", "s", "s", "value", {}, {.seeds = 2}};
  claim.arms = [](Effort) -> std::vector<Arm> { return {{"a", small("softmax")}}; };
  claim.measure = [](const Trial& trial, Finding& finding) {
    ArmScores row{"seeds"};
    for (const std::string& folder : trial.folders.at("a"))
      row.scores.push_back(double(read_result(folder).options.seed));
    finding.rows = {row, {"first", {double(trial.first_seed)}}};
  };
  claim.first_seed = 1000;
  const Paper paper{"p", "0", "t", {claim}};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_first_seed";
  std::filesystem::remove_all(o.runs);
  for (const bool confirm : {false, true}) {
    o.confirm = confirm;
    const Finding f = reproduce({&paper}, o, "", {})[0].findings.at(0);
    const double first = confirm ? 2000 : 1000;
    EXPECT_EQ(f.rows.at(0).scores, (std::vector<double>{first, first + 1}));
    EXPECT_EQ(f.rows.at(1).scores.at(0), first);
    EXPECT_EQ(double(f.first_seed), first);
  }
  // Its gap was measured in another way after a run on seed 0.
  for (const Claim& c : find_paper("measure").claims) {
    if (c.name == "training") EXPECT_EQ(c.first_seed, 3000);
  }
}

// SWAX's grid: tested with the window it was trained with, a model has the loss of its own test.
TEST(Reproduce, WindowGridTestsTrainedModels) {
  const auto arms = [](Effort) -> std::vector<Arm> {
    TrainOptions o = small("window:window=16");
    o.task = "mqar:T=32,pairs=2,vocabulary=64";
    o.eval.examples = 400;
    return {{"middle window", o}};
  };
  Claim claim{"c", "s", "s", "loss", {}, {.seeds = 1}, arms};
  for (const Claim& c : find_paper("swax").claims) {
    if (c.name == "window grid") claim.measure = c.measure;
  }
  const Paper trains{"p", "0", "t", {{"c", "s", "s", "test/loss", {}, {.seeds = 1}, arms}}};
  const Paper grid{"p", "0", "t", {claim}};
  ReproduceOptions o;
  o.runs = ::testing::TempDir() + "reproduce_grid";
  std::filesystem::remove_all(o.runs);
  const double own = -reproduce({&trains}, o, "", {})[0].findings.at(0).rows.at(0).scores.at(0);
  std::map<std::string, double> losses;
  const Finding crossed = reproduce({&grid}, o, "", {})[0].findings.at(0);
  for (const ArmScores& row : crossed.rows) losses[row.arm] = row.scores.at(0);
  EXPECT_NEAR(losses.at("middle window, tested middle"), own, 1e-5);
  EXPECT_NE(losses.at("middle window, tested short"), own);
  EXPECT_EQ(losses.at("middle window, tested long"), losses.at("middle window, tested longest"));
}

// A finding whose setting was at fault is withdrawn as soon as the fault is mended.
TEST(Reproduce, FindingsOfAMendedSettingAreWithdrawn) {
  Paper paper{"p", "0", "t", {{"c", "says", "here", "test/loss", {{E::above, "a", "b"}}}}};
  Finding f{"c", "said", "here", "test/loss", "cpu"};
  f.rows = {{"a", {-1, -1.01, -1.02}}, {"b", {-2, -2.01, -2.0}}};
  f.verdict = Verdict::holds;
  const Json file = Reproduction{&paper, {f}}.json();
  paper.claims[0].revision = 2;
  paper.claims[0].mended = "the angle was wrong";
  Reproduction now{&paper, {}};
  now.add(file);
  EXPECT_EQ(now.findings.at(0).verdict, Verdict::untested);
  EXPECT_EQ(now.findings[0].reason, "withdrawn, not yet run again: the angle was wrong");
  now.findings[0].revision = 2;  // as one that was run after it
  now.add(file);
  EXPECT_EQ(now.findings.size(), 1u);
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
      "p",
      "0",
      "t",
      {{"c", "s", "s", "test/loss", {{E::near, "same", "softmax", 1e-9}}, {2}, arms}}};
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
