// Verdicts on made-up scores, and that every claim of every paper can be set up.
#include "lab/reproduce.h"

#include <gtest/gtest.h>

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
    {"failed", {}, false, 0, 0, 0, "no data"}};

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
      ASSERT_NE(claim.arms == nullptr, claim.measure == nullptr) << paper.name << claim.name;
      if (claim.arms == nullptr) continue;
      for (const Effort scale : {Effort::cpu, Effort::gpu}) {
        std::set<std::string> labels;
        for (const Arm& arm : claim.arms(scale)) {
          EXPECT_TRUE(labels.insert(arm.label).second) << arm.label;
          for (const std::string& mixer : arm.options.model.pattern) {
            const size_t colon = mixer.find(':');
            EXPECT_NO_THROW(make_mixer(
                mixer.substr(0, colon),
                arm.options.model.D,
                colon == mixer.npos ? "" : mixer.substr(colon + 1)
            )) << paper.name
               << " " << claim.name << " " << mixer;
          }
        }
        for (const Expectation& e : claim.expects) {
          EXPECT_TRUE(labels.contains(e.a)) << e.a;
          EXPECT_TRUE(e.b.empty() || labels.contains(e.b)) << e.b;
        }
      }
    }
  }
}

}  // namespace
}  // namespace horner
