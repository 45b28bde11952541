#include "report/claims.h"

#include <gtest/gtest.h>

#include "report/arms.h"
#include "report/bands.h"
#include "report/findings.h"
#include "report/palette.h"

namespace horner {
namespace {

using E = Expectation;

TrainOptions options(const std::string& mixer) {
  TrainOptions o;
  o.task = "mqar:T=16,pairs=2,vocabulary=32";
  o.model.pattern = {mixer};
  o.model.layers = 3;
  o.model.D = 48;
  o.model.init = "gpt2";
  o.schedule.steps = 700;
  o.train.batch = 4;
  o.optim.lr = 0.01;
  return o;
}
std::vector<Arm> arms(Effort scale) {
  Arm wide{"wide", options("linear")};
  if (scale == Effort::gpu) wide.options.model.D = 96;
  return {{"narrow", options("softmax:heads=2")}, wide};
}

Claim claim(const char* name) {
  Claim c{name, "narrow is better", "here", "test/accuracy", {{E::above, "narrow", "wide"}}};
  c.protocol = {.seeds = 4, .most = 8, .rates = {.1, 1, 10}};
  c.arms = arms;
  c.settings = {{"model", "100 layers"}, {"mixer", "secret"}};
  c.prints = "0.9 against 0.5";
  c.printed = {{"wide", "0.5"}};
  return c;
}

std::string ours(const std::vector<Setting>& table, const std::string& what) {
  for (const Setting& s : table) {
    if (s.what == what) return s.ours;
  }
  return "";
}

// The table is read from the arms: a changed arm changes it.
TEST(Claims, OurSettingsAreReadFromTheArms) {
  const auto cpu = settings_of(claim("c"), Effort::cpu), gpu = settings_of(claim("c"), Effort::gpu);
  EXPECT_EQ(ours(cpu, "model"), "3 layers, D = 48, MLP swiglu, norm rms");
  EXPECT_EQ(
      ours(gpu, "model"),
      "3 layers, D = 48, MLP swiglu, norm rms | 3 layers, D = 96, MLP swiglu, norm rms"
  );
  EXPECT_EQ(ours(gpu, "start"), "gpt2");
  EXPECT_EQ(ours(gpu, "data"), "0.0028 M examples of 16 tokens, none twice");
  EXPECT_EQ(
      ours(gpu, "learning rates"), "0.001, 0.01, 0.1; best of seed 500, halved after a quarter"
  );
  EXPECT_EQ(ours(gpu, "seeds"), "4, then pairs up to 8");
  EXPECT_NE(ours(gpu, "cost").find("20 runs, 11 k steps"), std::string::npos) << ours(gpu, "cost");
  EXPECT_EQ(ours(cpu, "cost"), "");
  for (const Setting& s : gpu) {
    EXPECT_FALSE(s.paper.empty()) << s.what;
    if (s.what == "model") EXPECT_EQ(s.paper, "100 layers");
  }
}

// No claim of a paper types what its arms tell.
TEST(Claims, NoPaperTypesOurSettings) {
  for (const Paper& paper : papers()) {
    for (const Claim& c : paper.claims) {
      if (c.arms == nullptr) continue;
      EXPECT_FALSE(c.settings.empty()) << paper.name << " " << c.name;
      for (const Setting& s : c.settings) {
        EXPECT_FALSE(s.paper.empty()) << paper.name << " " << c.name << " " << s.what;
        EXPECT_TRUE(s.ours.empty()) << paper.name << " " << c.name << " " << s.what;
      }
      std::set<std::string> labels;
      for (const Arm& arm : c.arms(Effort::gpu)) labels.insert(arm.label);
      for (const auto& [arm, text] : c.printed)
        EXPECT_TRUE(labels.contains(arm)) << paper.name << " " << c.name << " " << arm;
      EXPECT_TRUE(c.expects.empty() || c.headline < c.expects.size()) << paper.name << c.name;
    }
  }
}

// Beside a verdict stands the number that decided it: the claim's own row, or the one that was refuted.
TEST(Claims, TheNumberIsThatOfTheVerdict) {
  Claim two = claim("first");
  two.expects.push_back({E::under, "wide", "", 0.2});
  const Paper paper{"p", "1", "title", {two}};
  Reproduction r{&paper, {}};
  Finding f{"first", "says", "here", "test/accuracy", "gpu"};
  f.rows = {{"narrow", {.9, .91, .92, .9}}, {"wide", {.5, .52, .51, .5}}};
  f.judgements = judge_all(two, f.rows);
  f.verdict = overall(f.judgements);
  r.findings = {f};
  EXPECT_EQ(f.verdict, Verdict::does_not_hold);
  EXPECT_EQ(claims_table({r}).rows[0][3].find("wide below 0.2: 0.508"), 0u)
      << claims_table({r}).rows[0][3];
  EXPECT_EQ(in_short(r).find("What does not hold here:"), 0u);
}

TEST(Claims, PageAndTable) {
  const Paper paper{"p", "1", "title", {claim("first"), claim("second")}, "small models"};
  Reproduction r{&paper, {}};
  Finding f{"first", "says", "here", "test/accuracy", "gpu"};
  f.rows = {{"narrow", {.9, .91, .92, .9}}, {"wide", {.5, .52, .51, .5}}};
  f.rows[1].printed = "0.5";
  r.findings = {f};
  r.add(Json{{"findings", Json::array({f.json()})}});
  r.findings[0].judgements = judge_all(paper.claims[0], f.rows);
  r.findings[0].verdict = overall(r.findings[0].judgements);
  r.add_missing();
  ASSERT_EQ(r.findings.size(), 2u);
  EXPECT_EQ(r.findings[1].verdict, Verdict::untested);
  EXPECT_EQ(
      sentence(r), "2 claims; the tests use small models. Holds: 1 (first). Untested: 1 (second)."
  );
  const std::string decided = in_short(r);
  EXPECT_EQ(
      decided.find("What holds here:\n\n- narrow is better. narrow better than wide: 0.40"), 0u
  ) << decided;
  EXPECT_EQ(decided.find("does not hold"), std::string::npos);
  const std::string page = markdown(r);
  EXPECT_NE(page.find(decided), std::string::npos);
  EXPECT_NE(page.find("| wide | 0.508 ± 0.015 | 4 | 0.5 |"), std::string::npos) << page;
  EXPECT_NE(page.find("| model | 100 layers | 3 layers"), std::string::npos);
  EXPECT_NE(page.find("not yet run; the first look takes 20 runs"), std::string::npos);
  const Table table = claims_table({r});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0][2], "holds");
  EXPECT_EQ(table.rows[0][3].find("narrow better than wide: 0.40"), 0u) << table.rows[0][3];
  EXPECT_EQ(table.rows[0][4], "0.9 against 0.5");
  EXPECT_EQ(table.rows[1][2], "untested");
  EXPECT_EQ(claims_count({r}), "2 claims of 1 paper: 1 holds, 1 is untested.");

  r.findings[1].reason = "withdrawn, not yet run again: the angle was wrong";
  EXPECT_EQ(
      claims_table({r}).rows[1][3].find(
          "withdrawn: the setting was at fault; the first look takes 20 runs"
      ),
      0u
  );
}

// A trained score says which direction is better; a computed one only if its claim does.
TEST(Claims, DirectionAndCommand) {
  Paper paper{"p", "1", "title", {claim("trained"), claim("confused"), claim("probe")}};
  paper.claims[1].lower_is_better = true;
  Reproduction r{&paper, {}};
  for (const Claim& c : paper.claims) {
    Finding f{c.name, "says", "here", c.name == "trained" ? "test/loss" : "share", "gpu"};
    f.rows = {{"narrow", {.1, .2}}};
    f.command = "./horner reproduce p --seeds 2";
    r.findings.push_back(Finding::from(f.json()));
  }
  EXPECT_EQ(better_of(r, r.findings[0]), Better::lower);
  EXPECT_EQ(better_of(r, r.findings[1]), Better::lower);
  EXPECT_EQ(better_of(r, r.findings[2]), Better::neither);
  EXPECT_EQ(picture(r).find("higher is better"), std::string::npos);
  EXPECT_NE(picture(r).find("share, lower is better"), std::string::npos);
  EXPECT_NE(markdown(r).find("`./horner reproduce p --seeds 2`"), std::string::npos);
  EXPECT_NE(page(r, "").find("./horner reproduce p <span>--seeds</span> 2"), std::string::npos);
}

// A survey's task is no sentence of a paper, and the sign of a difference is said where it is read.
TEST(Claims, APageSaysWhoSaysIt) {
  Paper paper{"p", "1", "title", {claim("first"), claim("other")}};
  Reproduction r{&paper, {}};
  Finding f{"first", "Wide is worse", "here", "test/accuracy", "gpu"};
  f.rows = {{"narrow", {.9, .91, .92, .9}}, {"wide", {.5, .52, .51, .5}}};
  f.judgements = judge_all(paper.claims[0], f.rows);
  f.verdict = Verdict::not_shown;
  f.reason = "would take about 22 seeds; would take about 46 seeds";
  r.findings = {f};
  r.findings.push_back({"other", "Not the paper: a check", "here", "test/accuracy", "gpu"});
  std::string text = page(r, "");
  EXPECT_NE(text.find("<p>The paper: Wide is worse.</p>"), std::string::npos);
  EXPECT_NE(text.find("<p>Not the paper: a check.</p>"), std::string::npos);
  EXPECT_NE(text.find("A difference above 0: the first arm is better."), std::string::npos);
  EXPECT_EQ(text.find("<p>Not shown: "), std::string::npos);  // the table of expectations says it
  paper.survey = true;
  text = page(r, "");
  EXPECT_NE(text.find("<p>The task: Wide is worse.</p>"), std::string::npos);
}

// A bar has the colour of the mixer that its arm trains, whatever the arm is called.
TEST(Claims, ArmsHaveTheColoursAndEquationsOfTheirMixers) {
  const Paper paper{"p", "1", "title", {claim("trained")}};
  Finding f{"trained", "says", "here", "test/accuracy", "gpu"};
  f.rows = {{"narrow", {.9, .8}}, {"wide", {.5, .4}}, {"chance", {.1, .1}}};
  const Reproduction r{&paper, {f}};
  EXPECT_EQ(arm_colour(r, f, "narrow"), mixer_colour("softmax"));
  EXPECT_EQ(arm_colour(r, f, "wide"), mixer_colour("linear"));
  EXPECT_EQ(arm_colour(r, f, "chance"), kGrey);
  const std::string text = page(r, "");
  EXPECT_NE(text.find("<math"), std::string::npos);
  EXPECT_NE(text.find("<small>key</small>"), std::string::npos);  // the task, drawn
  EXPECT_NE(text.find("accuracy on the test, higher is better"), std::string::npos);
}

TEST(Claims, TheTableOfClaimsIsFoldedBehindTheCharts) {
  const Paper paper{"p", "1", "title", {claim("open"), claim("trained")}};
  Finding f{"trained", "says", "here", "test/accuracy", "cpu"};
  f.rows = {{"narrow", {.9, .8}}, {"wide", {.5, .4}}};
  f.device = "NVIDIA H200";
  Reproduction r{&paper, {f}};
  r.add_missing();
  const std::string text = page(r, "");
  const size_t charts = text.find("<figure>"), table = text.find("<h2>Claims</h2>");
  ASSERT_NE(table, std::string::npos);
  EXPECT_LT(charts, table);
  // What has numbers comes first; what has no verdict opens on a click.
  const size_t open = text.find("<h3>open, ");
  ASSERT_NE(open, std::string::npos);
  EXPECT_LT(charts, open);
  EXPECT_LT(text.find("<summary>1 without a fair test yet"), open);
  EXPECT_LT(table, text.find("<summary>The verdict of each claim"));
  EXPECT_NE(text.find("<h2>trained, small scale: "), std::string::npos);  // wherever it ran
  EXPECT_EQ(text.find("scale cpu:"), std::string::npos);
}

// A picture of shares has no order among them, and no claim that was withdrawn beside one that has a verdict.
TEST(Claims, ThePictureHasOneUnitAndOnlyVerdicts) {
  const Paper paper{"p", "1", "title", {claim("probe"), claim("old")}};
  Finding f{"probe", "says", "here", "share", "gpu"}, old{"old", "says", "here", "share", "gpu"};
  f.rows = {{"order 1", {.1, .2}}, {"order of the largest term", {26, 27}}};
  old.rows = {{"order 2", {.3, .4}}};
  old.verdict = Verdict::untested;
  const Reproduction r{&paper, {f, old}};
  EXPECT_NE(picture(r).find("order 1"), std::string::npos);
  EXPECT_EQ(picture(r).find("order of the largest term"), std::string::npos);
  EXPECT_NE(page(r, "").find("order of the largest term"), std::string::npos);  // its table
  EXPECT_EQ(picture(r).find("order 2"), std::string::npos);
  EXPECT_NE(picture({&paper, {old}}).find("order 2"), std::string::npos);
}

TEST(Claims, NumbersWithABandAreDrawnInIt) {
  const Paper paper{"p", "1", "title", {claim("limit")}};
  Finding f{"limit", "says", "here", "value", "gpu"};
  f.rows = {{"sd 1: it falls like L^-1", {-1}}};
  f.judgements = {
      {"sd 1: it falls like L^-1: in [-1.1, -0.9]", {-1, .01, 1}, Verdict::holds},
      {"sd 2: it falls like L^-1: in [-1.1, -0.9]", {-.8, .01, 1}, Verdict::does_not_hold}};
  const std::vector<Bars> pictures = band_pictures(f);
  ASSERT_EQ(pictures.size(), 2u);
  EXPECT_EQ(pictures[0].title, "limit, full scale: sd 1");
  EXPECT_EQ(pictures[0].bars[0].name, "it falls like L⁻¹");
  EXPECT_NEAR(pictures[0].bars[0].value, 0, 1e-9);
  EXPECT_NEAR(pictures[1].bars[0].value, 1.5, 1e-9);  // beyond the edge: at the end of the axis
  EXPECT_NE(page({&paper, {f}}, "").find("it falls like L⁻¹</text>"), std::string::npos);
  f.judgements[0].text = "softmax better than linear";
  EXPECT_TRUE(band_pictures(f).empty());
}

TEST(Claims, AnEmptySurveyHasNoTable) {
  Paper paper{"s", "1", "title", {claim("one")}, "", true};
  Reproduction r{&paper, {}};
  r.add_missing();
  EXPECT_EQ(page(r, "").find("Every mixer"), std::string::npos);
  EXPECT_EQ(markdown(r).find("| mixer | one |"), std::string::npos);
}

TEST(Claims, ASurveyIsATableOfMixersAndTasks) {
  Paper paper{"s", "1", "title", {claim("one"), claim("two")}, "", true, true};
  for (Claim& c : paper.claims) c.expects.clear();
  Finding f{"one", "says", "here", "test/accuracy", "gpu"};
  f.rows = {{"narrow", {.9, .92}}, {"wide", {.5, .5}}};
  f.rows[0].state_bytes = 64;
  f.rows[1].state_bytes = 128;
  f.verdict = overall({});
  EXPECT_EQ(f.verdict, Verdict::measured);
  Reproduction r{&paper, {f}};
  f.claim = "two";
  f.rows[0].state_bytes = 640;
  f.rows.pop_back();
  r.findings.push_back(f);
  const Table table = survey_table(r);
  EXPECT_EQ(table.head, (std::vector<std::string>{"mixer", "one", "two"}));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"wide", "0.5", "-"}));
  const Chart chart = state_picture(r);
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[0].points.size(), 2u);
  EXPECT_EQ(chart.series[0].points[1].x, 640);
  EXPECT_NE(markdown(r).find("| wide | 0.5 | - |"), std::string::npos);
}

}  // namespace
}  // namespace horner
