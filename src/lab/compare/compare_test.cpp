#include "lab/compare/compare.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "lab/compare/verdict.h"

namespace horner {
namespace {

CompareRun run_of(const std::string& mixer, double lr, int64_t seed, double valid, double test) {
  CompareRun run;
  run.mixer = mixer;
  run.lr = lr;
  run.seed = seed;
  run.options.model.pattern = {"conv", mixer};
  run.result.options = run.options;
  run.result.valid.values["accuracy"] = valid;
  run.result.test.values["accuracy"] = test;
  for (int i = 0; i < 50; ++i)
    run.result.test.by_example.push_back(test + (i % 2 == 0 ? .01 : -.01));
  run.result.state_bytes = mixer == "softmax" ? 65536 : 4096;
  run.result.curve = {{100, 1.0, valid}};
  return run;
}

CompareResult made_up() {
  CompareResult r;
  r.options.seeds = 3;
  r.metric = "accuracy";
  const double noise[] = {0, .004, -.003};
  for (int64_t s = 0; s < 3; ++s) {
    r.runs.push_back(run_of("gla", 1e-3, s, .40 + noise[s], .41 + 2 * noise[s]));
    r.runs.push_back(run_of("softmax", 1e-3, s, .99, .99 + noise[s]));
    r.runs.push_back(run_of("taylor", 1e-3, s, .98, .988 - noise[s]));
  }
  return r;
}

TEST(Compare, SoftmaxWithSettingsIsTheReference) {
  CompareResult r = made_up();
  for (CompareRun& run : r.runs)
    if (run.mixer == "softmax") run.mixer = "softmax:position.kind=none";
  sum_up(r);
  EXPECT_EQ(r.reference, "softmax:position.kind=none");
}

TEST(Compare, VerdictInWords) {
  CompareResult r = made_up();
  sum_up(r);
  EXPECT_EQ(r.reference, "softmax");
  ASSERT_EQ(r.differences.size(), 2u);
  EXPECT_TRUE(r.differences[0].shown());
  EXPECT_FALSE(r.differences[1].shown());
  EXPECT_NEAR(r.differences[0].seeds.mean, -.58 + 1e-3 / 3, 1e-9);
  const std::string text = verdict(r);
  EXPECT_NE(
      text.find("On mqar over 3 paired seeds, softmax has accuracy 0.990 and keeps 64 KiB of state."
      ),
      std::string::npos
  ) << text;
  EXPECT_NE(text.find("No difference to softmax shown: taylor (-0.00"), std::string::npos) << text;
  EXPECT_NE(text.find("Worse than softmax: gla (-0.580 ± 0.0"), std::string::npos) << text;
  EXPECT_NE(
      text.find("smallest state that keeps up with softmax is that of taylor: 4 KiB, 6 % of 64 KiB"
      ),
      std::string::npos
  ) << text;
}

TEST(Compare, AReferenceThatLearnedNothingIsNoReference) {
  CompareResult r = made_up();
  r.baselines = {{"chance", .01, "any value"}, {"shortcut", .995, "any value of the context"}};
  sum_up(r);
  const std::string text = verdict(r);
  EXPECT_NE(text.find("softmax itself does not beat \"shortcut\""), std::string::npos) << text;
  EXPECT_EQ(text.find("smallest state"), std::string::npos) << text;
}

TEST(Compare, SmallerIsBetter) {
  CompareResult r = made_up();
  r.smaller = true;
  sum_up(r);
  EXPECT_NE(verdict(r).find("Better than softmax: gla"), std::string::npos);
}

// The learning rate is chosen on validation, whatever the test says, and an edge is flagged.
TEST(Compare, LearningRateByValidation) {
  CompareResult r;
  r.metric = "accuracy";
  r.options.seeds = 2;
  for (int64_t s = 0; s < 2; ++s) {
    r.runs.push_back(run_of("gla", 1e-3, s, .5, .9));
    r.runs.push_back(run_of("gla", 1e-2, s, .6, .4));
    r.runs.push_back(run_of("gla", 1e-1, s, .1, .1));
  }
  sum_up(r);
  EXPECT_EQ(r.rows[0].lr, 1e-2);
  EXPECT_NEAR(r.rows[0].score.mean, .4, 1e-12);
  EXPECT_EQ(r.rows[0].grid.size(), 3u);
  EXPECT_TRUE(r.rows[0].lr_note.empty());
  for (CompareRun& run : r.runs) run.result.valid.values["accuracy"] = -run.lr;
  sum_up(r);
  EXPECT_EQ(r.rows[0].lr_note, "lowest of its grid");
  EXPECT_NE(warnings(r)[0].find("wider --lr_grid"), std::string::npos);
}

// What holds of several mixers is one note, not one each.
TEST(Compare, EqualNotesAreMerged) {
  CompareResult r = made_up();
  sum_up(r);
  r.warnings.clear();
  for (CompareRow& row : r.rows) row.lr_note = "highest of its grid";
  const std::vector<std::string> list = warnings(r);
  const auto said = std::count_if(list.begin(), list.end(), [](const std::string& one) {
    return one.find("highest of its grid") != std::string::npos;
  });
  EXPECT_EQ(said, 1);
  EXPECT_NE(list[0].find("gla (0.001)"), std::string::npos) << list[0];
  EXPECT_NE(list[0].find("softmax (0.001)"), std::string::npos) << list[0];
}

TEST(Compare, OneLearningRateForAllIsSaid) {
  CompareResult r = made_up();
  sum_up(r);
  const std::string said = "one learning rate, 0.001; gla may do better with another: --lr_grid ";
  EXPECT_NE(warnings(r).back().find(said), std::string::npos) << warnings(r).back();
  r.options.mixers.clear();  // runs of `horner train`, which has no grid
  EXPECT_TRUE(warnings(r).back().ends_with("with another: train it again with --optim.lr 0.00025."))
      << warnings(r).back();
  for (CompareRun& run : r.runs) run.lr = run.mixer == "gla" ? 2e-3 : 1e-3;
  sum_up(r);
  for (const std::string& warning : warnings(r))
    EXPECT_EQ(warning.find("one learning rate"), std::string::npos);
}

TEST(Compare, FailedRunsAreReportedAndTheRestCounts) {
  CompareResult r = made_up();
  for (CompareRun& run : r.runs) {
    if (run.mixer == "taylor" && run.seed == 1) run.failure = "step 7: the loss is nan";
    if (run.mixer == "gla") run.failure = "out of memory";
  }
  sum_up(r);
  ASSERT_EQ(r.rows.size(), 3u);
  EXPECT_EQ(r.rows[0].failed, 3);
  ASSERT_EQ(r.differences.size(), 1u);
  EXPECT_EQ(r.differences[0].seeds.n, 2);
  EXPECT_NE(verdict(r).find("over 3 paired seeds, softmax"), std::string::npos) << verdict(r);
  EXPECT_NE(verdict(r).find(" over 2 seeds, 4 KiB of state)"), std::string::npos) << verdict(r);
  EXPECT_NE(warnings(r)[0].find("out of memory"), std::string::npos);
  EXPECT_EQ(Json::parse(r.json().dump())["rows"][0]["score"]["mean"], Json());
  for (CompareRun& run : r.runs) {
    if (run.mixer == "softmax" && run.seed > 0) run.failure = "killed by signal 9 (Killed)";
  }
  sum_up(r);
  EXPECT_NE(
      verdict(r).find("over 1 of 3 paired seeds (the others did not finish)"), std::string::npos
  ) << verdict(r);
  for (CompareRun& run : r.runs) run.failure = "no";
  sum_up(r);
  EXPECT_EQ(verdict(r), "No run finished: nothing can be said.");
}

// Both seeds differ by -0.00025: Student's interval has no width, the test examples do not show a difference.
TEST(Compare, EqualDifferencesOfSeedsShowNothingAlone) {
  Difference d;
  d.seeds = t_interval({-0.00025, -0.00025});
  d.examples = {-0.00025, -0.0015, 0.001, 400};
  EXPECT_FALSE(d.shown());
  d.examples = {-0.5, -0.55, -0.45, 400};
  EXPECT_TRUE(d.shown());
}

TEST(Compare, OneSeedSaysSo) {
  CompareResult r;
  r.metric = "accuracy";
  r.options.seeds = 1;
  r.runs = {run_of("softmax", 1e-3, 0, 1, 1), run_of("gla", 1e-3, 0, .5, .5)};
  sum_up(r);
  EXPECT_TRUE(r.differences[0].shown());
  EXPECT_NE(verdict(r).find("over test examples"), std::string::npos);
  EXPECT_NE(warnings(r)[0].find("One seed"), std::string::npos);
}

TEST(Compare, PlanPairsSeedsAndRefusesNonsense) {
  CompareOptions o;
  o.mixers = {"softmax", "gla:heads=2"};
  o.lr_grid = {1e-3, 1e-2};
  std::map<std::string, Budget> budgets;
  const std::vector<CompareRun> runs = plan(o, budgets);
  ASSERT_EQ(runs.size(), 12u);
  EXPECT_EQ(
      runs[2].options.model.pattern, (std::vector<std::string>{"conv:kind=dense", "gla:heads=2"})
  );
  EXPECT_EQ(runs[4].seed, 1);
  o.model.pattern = {"conv:kind=dense", "kernel=4", "MIXER"};  // as the command line cuts it
  EXPECT_EQ(
      plan(o, budgets)[0].options.model.pattern,
      (std::vector<std::string>{"conv:kind=dense,kernel=4", "softmax"})
  );
  o.mixers = {"softmax", "softmax"};
  EXPECT_THROW(plan(o, budgets), UsageError);
  o.mixers = {"softmaxx"};
  EXPECT_THROW(plan(o, budgets), UsageError);
  o = {};
  o.model.pattern = {"conv"};
  EXPECT_THROW(plan(o, budgets), UsageError);
}

TEST(Compare, EqualState) {
  CompareOptions o;
  o.mixers = {"gla", "retnet"};
  o.iso = "state";
  std::map<std::string, Budget> budgets;
  plan(o, budgets);
  EXPECT_LT(std::abs(budgets["retnet"].mismatch()), 0.01);
  EXPECT_NE(budgets["retnet"].mixer, "retnet");
}

// Speeds at 128, 512, 2048, with ranges from 10 % below to 10 % above.
std::vector<SpeedPoint> speeds(const std::vector<double>& decode) {
  std::vector<SpeedPoint> points;
  for (const double x : decode)
    points.push_back({int64_t{128} << (2 * points.size()), 0, x, 0, 0.9 * x, 1.1 * x});
  return points;
}

TEST(Compare, CrossoverOfSpeedsWithRanges) {
  const std::vector<SpeedPoint> softmax = speeds({100, 50, 12.5});
  const auto kind = [&](const std::vector<double>& mixer) {
    return decode_crossover(speeds(mixer), softmax).kind;
  };
  using Kind = Crossover::Kind;
  EXPECT_EQ(kind({200, 100, 50}), Kind::always);
  EXPECT_EQ(kind({50, 20, 5}), Kind::never);
  EXPECT_EQ(kind({100, 52, 13}), Kind::not_resolved);  // nowhere apart
  EXPECT_EQ(kind({50, 20, 12}), Kind::not_resolved);   // not at the end
  EXPECT_EQ(kind({200, 20, 50}), Kind::not_resolved);  // faster, slower, faster
  EXPECT_EQ(kind({}), Kind::not_measured);
  EXPECT_EQ(kind({0, 0, 0}), Kind::not_measured);
  const Crossover clear = decode_crossover(speeds({50, 100, 50}), softmax);
  EXPECT_EQ(clear.kind, Kind::between);
  EXPECT_EQ(clear.low, 128);
  EXPECT_EQ(clear.high, 512);
  const Crossover wide = decode_crossover(speeds({50, 52, 50}), softmax);
  EXPECT_EQ(wide.low, 128);
  EXPECT_EQ(wide.high, 2048);
  EXPECT_EQ(decode_crossover(speeds({100, 80, 50}), softmax).low, 0);  // slower nowhere for sure
}

TEST(Compare, SpeedsAreRepeated) {
  ModelOptions softmax, linear;
  softmax.D = linear.D = 16;
  softmax.layers = linear.layers = 1;
  softmax.vocabulary = linear.vocabulary = 32;
  linear.pattern = {"linear"};
  std::vector<std::pair<int, size_t>> order;
  const auto points =
      measure_speeds({softmax, linear}, {8, 16}, at::kCPU, [&](int round, size_t m) {
        order.emplace_back(round, m);
      });
  EXPECT_EQ(order.size(), 2u * kSpeedRounds);
  EXPECT_EQ(order[1], (std::pair<int, size_t>{0, 1}));  // in turn
  for (const auto& model : points) {
    ASSERT_EQ(model.size(), 2u);
    for (const SpeedPoint& p : model) {
      EXPECT_GT(p.decode_p10, 0);
      EXPECT_LE(p.decode_p10, p.decode);
      EXPECT_LE(p.decode, p.decode_p90);
    }
  }
}

TEST(Compare, MemoryCrossover) {
  ModelOptions own, cache;
  own.pattern = {"retnet"};
  const int64_t at = memory_crossover(own, cache);
  EXPECT_LT(state_bytes(own, at), state_bytes(cache, at));
  EXPECT_GE(state_bytes(own, at - 1), state_bytes(cache, at - 1));
  EXPECT_EQ(memory_crossover(cache, cache), -1);
}

}  // namespace
}  // namespace horner
