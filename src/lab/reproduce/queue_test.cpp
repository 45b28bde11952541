// The queue: order, time limit, resuming from one file, and what a claim costs.
#include "lab/reproduce/queue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "core/check.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "lab/reproduce/record.h"

namespace horner {
namespace {

namespace fs = std::filesystem;
using E = Expectation;

TrainOptions small(const std::string& mixer, int64_t steps) {
  TrainOptions o;
  o.task = "mqar:T=16,pairs=2,vocabulary=32";
  o.model.pattern = {mixer};
  o.model.layers = 1;
  o.model.D = 16;
  o.model.mlp = "none";
  o.schedule.steps = steps;
  o.train.batch = 4;
  o.eval.every = 0;
  o.eval.examples = 16;
  return o;
}

template <int64_t steps>
std::vector<Arm> arms(Effort) {
  return {{"a", small("softmax", steps)}, {"b", small("linear", steps)}};
}

Claim claim_of(const char* name, std::vector<Arm> (*of)(Effort), double margin) {
  return {name, "s", "s", "test/loss", {{E::above, "a", "b", margin}}, {.seeds = 2, .most = 4}, of};
}

struct Queue : ::testing::Test {
  const Paper paper{
      "p",
      "0",
      "t",
      {claim_of("dear", arms<9>, -100),
       claim_of("open", arms<6>, 0),
       claim_of("cheap", arms<3>, -100)}};
  ReproduceOptions o;
  std::vector<std::string> done;

  void SetUp() override {
    const std::string base = ::testing::TempDir() + "queue_" +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(base);
    fs::create_directories(base + "/out");
    o.runs = base + "/runs";
    o.out = base + "/out";
    o.record = base + "/record.jsonl";
    o.queue = true;
  }

  void run(const RunsTell& tell = {}) {
    run_queue({&paper}, o, "", tell, [&](Reproduction& r) {
      for (const Finding& f : r.findings) done.push_back(f.claim);
      const std::string path = o.out + "/p.json";
      if (fs::exists(path)) r.add(Json::parse(read_file(path)));
      write_file(path, r.json().dump());
    });
  }

  size_t open() const {
    size_t count = 0;
    for (const Queued& q : queue_of({&paper}, o)) count += q.open ? 1 : 0;
    return count;
  }
};

TEST_F(Queue, TheCheapestFirstAndEachOnce) {
  EXPECT_EQ(open(), 3u);
  run();
  EXPECT_EQ(done, (std::vector<std::string>{"cheap", "open", "dear"}));
  EXPECT_EQ(open(), 0u);  // decided, or all seeds are used
  run();
  EXPECT_EQ(done.size(), 3u);
  o.claim = {"cheep"};
  EXPECT_THROW(run(), UsageError);
  o.claim.clear();
  o.confirm = true;  // only what was decided, on other seeds
  EXPECT_EQ(open(), 2u);
  run();
  EXPECT_EQ(done.size(), 5u);
  EXPECT_EQ(open(), 0u);
}

// A claim that the limit cuts has no finding; the next call goes on with it, and the finished ones are kept.
TEST_F(Queue, StopsAtTheLimitAndGoesOn) {
  {
    const TimeLimit limit(1e-9);
    EXPECT_TRUE(TimeLimit::reached());
    run();
  }
  EXPECT_TRUE(done.empty());
  {
    const TimeLimit limit(3600);
    bool late = false;
    std::optional<TimeLimit> over;
    run([&](const RunsTick& tick) {
      if (tick.steps == 4 * 6 && tick.steps_done >= 6 && !late) {  // inside the second claim
        late = true;
        over.emplace(1e-9);
      }
    });
    EXPECT_TRUE(TimeLimit::reached());
  }
  EXPECT_FALSE(TimeLimit::reached());
  EXPECT_FALSE(interrupted());
  EXPECT_EQ(done, std::vector<std::string>{"cheap"});
  EXPECT_EQ(open(), 2u);
  run();
  EXPECT_EQ(done, (std::vector<std::string>{"cheap", "open", "dear"}));
}

// Claims of one pool, the same name in two papers, and a limit inside of the pool: what has finished is judged.
TEST_F(Queue, ClaimsShareAPoolWhereSeveralRunsGoAtOnce) {
  const Paper other{
      "q", "0", "t", {claim_of("cheap", arms<2>, -100), claim_of("open", arms<5>, 0)}};
  o.jobs = 2;
  o.claim = {"p/cheap", "q/cheap", "p/open"};
  std::set<int64_t> pools;  // by their steps
  const auto run_both = [&](const RunsTell& tell) {
    run_queue({&paper, &other}, o, "", tell, [&](Reproduction& r) {
      for (const Finding& f : r.findings) done.push_back(r.paper->name + "/" + f.claim);
    });
  };
  std::optional<TimeLimit> over;
  run_both([&](const RunsTick& tick) {
    pools.insert(tick.steps);
    if (tick.runs_done == 9 && !over) over.emplace(1e-9);  // one run of p/cheap
  });
  over.reset();
  EXPECT_EQ(pools, (std::set<int64_t>{4 * (2 + 3 + 6)}));
  EXPECT_EQ(done, (std::vector<std::string>{"q/cheap", "p/open"}));
  done.clear();
  run_both({});
  EXPECT_EQ(done, (std::vector<std::string>{"q/cheap", "p/open", "p/cheap"}));
}

// One file stands for the folders of all runs, and gives the same findings on a machine that has none of them.
TEST_F(Queue, ARecordIsEnoughToGoOn) {
  run();
  const std::string first = read_file(o.out + "/p.json");
  const std::string record = read_file(o.record);
  EXPECT_EQ(record.find(o.runs), std::string::npos);  // no paths
  std::set<fs::file_time_type> before;
  fs::remove_all(o.runs);
  fs::remove(o.out + "/p.json");
  done.clear();
  int64_t steps = 0;
  run([&](const RunsTick& tick) { steps = std::max(steps, tick.steps); });
  EXPECT_EQ(steps, 0);  // nothing was trained
  EXPECT_EQ(done.size(), 3u);
  EXPECT_EQ(read_file(o.record), record);
  const Json then = Json::parse(first), now = Json::parse(read_file(o.out + "/p.json"));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(then["findings"][i]["rows"].dump(), now["findings"][i]["rows"].dump());
  write_file(o.record, "{\n");
  EXPECT_THROW(run(), DataError);
}

// A claim whose runs failed is tried again, after all others.
TEST_F(Queue, AFailureIsTriedAgainLast) {
  Claim fails = claim_of(
      "fails",
      [](Effort) -> std::vector<Arm> {
        TrainOptions o = small("softmax", 1);
        o.task = "patches:data=/nowhere";
        return {{"a", o}, {"b", o}};
      },
      0
  );
  const Paper own{"p", "0", "t", {fails, claim_of("cheap", arms<3>, -100)}};
  for (int call = 0; call < 2; ++call) {
    run_queue({&own}, o, "", {}, [&](Reproduction& r) {
      for (const Finding& f : r.findings) done.push_back(f.claim);
      const std::string path = o.out + "/p.json";
      if (fs::exists(path)) r.add(Json::parse(read_file(path)));
      write_file(path, r.json().dump());
    });
  }
  EXPECT_EQ(done, (std::vector<std::string>{"fails", "cheap", "fails"}));
  const auto list = queue_of({&own}, o);
  EXPECT_EQ(list.back().claim->name, "fails");
  EXPECT_EQ(list.back().status, "untested, a run failed");
  EXPECT_TRUE(list.back().open);
}

// Weights are not in the record: what reads them is trained again.
TEST_F(Queue, ClaimsThatReadWeightsTrainAgain) {
  Claim reads{"reads", "s", "s", "value", {{E::reaches, "weights", "", 0}}, {.seeds = 2}, arms<3>};
  reads.measure = [](const Trial& trial, Finding& finding) {
    ArmScores row{"weights"};
    for (const std::string& folder : trial.folders.at("a"))
      row.scores.push_back(fs::exists(folder + "/checkpoints") ? 1 : -1);
    finding.rows.push_back(row);
  };
  const Paper own{"q", "0", "t", {reads}};
  const auto verdict = [&] {
    Verdict last = Verdict::untested;
    run_queue({&own}, o, "", {}, [&](Reproduction& r) { last = r.findings.at(0).verdict; });
    return last;
  };
  EXPECT_EQ(verdict(), Verdict::holds);
  fs::remove_all(o.runs);
  EXPECT_EQ(verdict(), Verdict::holds);
}

// A measure that throws is a failed claim, not the end of the claims beside it; it is tried again last.
TEST_F(Queue, AMeasureThatFailsLeavesTheOthers) {
  Claim throws{"throws", "s", "s", "value", {{E::reaches, "x", "", 0}}, {.seeds = 2}, arms<2>};
  throws.measure = [](const Trial&, Finding&) { throw RunError("no {}\nand more", "such thing"); };
  Claim alone = throws;
  alone.name = "alone";
  alone.arms = nullptr;
  const Paper own{"r", "0", "t", {throws, claim_of("cheap", arms<3>, -100), alone}};
  o.jobs = 2;
  std::vector<Finding> findings;
  run_queue({&own}, o, "", {}, [&](Reproduction& r) {
    for (const Finding& f : r.findings) findings.push_back(f);
    write_file(o.out + "/r.json", r.json().dump());
  });
  ASSERT_EQ(findings.size(), 3u);
  for (const size_t i : {0, 2}) {
    EXPECT_EQ(findings[i].verdict, Verdict::untested);
    EXPECT_EQ(findings[i].reason, "no such thing");
  }
  EXPECT_EQ(findings[1].verdict, Verdict::holds);
  const auto list = queue_of({&own}, o);
  EXPECT_EQ(list[0].claim->name, "cheap");
  EXPECT_TRUE(list[1].failed && list[1].open && list[2].failed && list[2].open);
}

// By hand: T = 16, B = 4, D = 16, one layer are 1024 numbers, fewer than a GPU can be fast for.
TEST(ClaimCost, CountsRunsAndSteps) {
  const double step = 0.5e-3;
  EXPECT_NEAR(step_seconds(small("softmax", 8)), step, 1e-12);
  Claim claim = claim_of("c", arms<8>, 0);
  ClaimCost b = budget(claim, Effort::gpu, 4);  // one rate: 4 runs of each arm
  EXPECT_EQ(b.runs, 8);
  EXPECT_DOUBLE_EQ(b.steps, 64);
  EXPECT_NEAR(b.seconds, 64 * step, 1e-9);
  TrainOptions drops = small("softmax", 8);
  drops.model.dropout = 0.1;  // no CUDA graph
  EXPECT_NEAR(step_seconds(drops), 3e-3 + 0.17e-9 * 1024, 1e-12);
  claim.protocol.rates = {.1, 1, 10};
  b = budget(claim, Effort::gpu, 4);  // 3 quarters, 2 to the end, one beyond, 4 seeds
  EXPECT_EQ(b.runs, 2 * (3 + 2 + 1 + 4));
  EXPECT_DOUBLE_EQ(b.steps, 2 * 8 * (.75 + 2 + 1 + 4));
  claim.protocol.rate_each_seed = true;
  b = budget(claim, Effort::gpu, 4);
  EXPECT_DOUBLE_EQ(b.steps, 2 * 8 * 4 * (.75 + 2));
}

// Equal runs of several claims count once, with the most seeds.
TEST(ClaimCost, SharedRunsCountOnce) {
  Claim one = claim_of("one", arms<8>, 0), more = claim_of("more", arms<8>, 1);
  more.protocol.seeds = 5;
  const Claim other = claim_of("other", arms<4>, 0);
  const ClaimCost alone = first_looks({&one}, Effort::gpu);
  EXPECT_EQ(alone.runs, 4);
  EXPECT_DOUBLE_EQ(alone.seconds, budget(one, Effort::gpu, 2).seconds);
  EXPECT_EQ(first_looks({&one, &more}, Effort::gpu).runs, 10);
  EXPECT_EQ(first_looks({&one, &more, &other}, Effort::gpu).runs, 14);
}

// Learned features: 4 heads of 16 x 4 features of hidden width 64 in each of 2 layers, 64 tokens a step.
TEST(ClaimCost, LearnedFeaturesCost) {
  TrainOptions o = small("luna", 8), plain = small("linear", 8);
  o.model.layers = plain.model.layers = 2;
  EXPECT_NEAR(step_seconds(o) - step_seconds(plain), 0.15e-9 * 64 * 2 * 4 * 64, 1e-15);
}

// What docs/bench.md measured on one H200.
TEST(ClaimCost, AgreesWithTheMeasuredSteps) {
  TrainOptions recall = small("softmax", 1);
  recall.task = "mqar:T=128,pairs=24,vocabulary=256";
  recall.model.D = 128;
  recall.model.layers = 2;
  recall.train.batch = 128;
  EXPECT_NEAR(1 / step_seconds(recall), 1000, 50);
  TrainOptions language = recall;
  language.task = "mqar:T=1024,pairs=24,vocabulary=32000";
  language.model.D = 1024;
  language.model.layers = 20;
  language.train.batch = 36;
  EXPECT_NEAR(step_seconds(language), 0.128, 0.005);
}

// Every claim of every paper: its first look is at most 30 minutes of one H200.
TEST(ClaimCost, EveryFirstLookFitsIntoHalfAnHour) {
  for (const Paper& paper : papers()) {
    for (const Claim& claim : paper.claims) {
      const ClaimCost b = budget(claim, Effort::gpu, claim.protocol.looks().front());
      EXPECT_LE(b.minutes(), 30) << paper.name << " " << claim.name << ": " << words(b);
    }
  }
}

}  // namespace
}  // namespace horner
