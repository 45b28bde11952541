// What a comparison's page says and draws.
#include "report/compare_page.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/compare_charts.h"
#include "report/compare_table.h"

namespace horner {
namespace {

CompareRow row_of(const std::string& mixer, double score) {
  CompareRow row;
  row.mixer = row.settings = mixer;
  row.scores = {score};
  row.score = t_interval(row.scores);  // of one seed: no interval
  row.curve = {{10, row.score}, {20, row.score}};
  row.state_bytes = 4096;
  return row;
}

CompareResult one_seed(const std::string& metric, bool smaller) {
  CompareResult r;
  r.metric = metric;
  r.smaller = smaller;
  r.task = {{"name", "mqar"}, {"T", 64}};
  r.rows = {row_of("softmax", .5), row_of("gla", .25)};
  r.reference = "softmax";
  r.differences = {{"gla", "softmax", t_interval({-.25}), {-.25, -.3, -.2, 10, 10}}};
  return r;
}

TEST(ComparePage, TheVerdictHasALineForEachGroup) {
  CompareResult r = one_seed("accuracy", false);
  r.verdict =
      "On mqar, softmax has accuracy 0.5. Worse than softmax: gla. The smallest state that is it.";
  EXPECT_NE(
      html(compare_page(r)).find("accuracy 0.5.\nWorse than softmax: gla.\nThe smallest"),
      std::string::npos
  );
}

TEST(ComparePage, NoBandWithoutAnInterval) {
  const CompareResult r = one_seed("accuracy", false);
  EXPECT_EQ(svg(curve_chart(r)).find("class=\"band\""), std::string::npos);
  CompareResult equal = r;  // three seeds with one score
  for (CompareRow& row : equal.rows)
    for (CompareRow::Point& p : row.curve) p.valid = t_interval({.5, .5, .5});
  EXPECT_EQ(svg(curve_chart(equal)).find("class=\"band\""), std::string::npos);
  CompareResult many = r;
  for (CompareRow& row : many.rows)
    for (CompareRow::Point& p : row.curve) p.valid = t_interval({.9, .99, .999});
  const Chart chart = curve_chart(many);
  EXPECT_NE(svg(chart).find("class=\"band\""), std::string::npos);
  EXPECT_EQ(chart.series[0].points[0].high, 1);  // no share above 1
}

TEST(ComparePage, PartsOfTheTestAreNamedInWords) {
  CompareResult r = one_seed("accuracy", false);
  for (CompareRow& row : r.rows)
    row.slices = {
        {"num_kv_pairs/accuracy-4", row.score},
        {"num_kv_pairs/accuracy-8", row.score},
        {"length/accuracy-32", row.score},  // the only length: left out
        {"first error", row.score}};
  const std::string text = html(compare_page(r));
  for (const char* words :
       {">accuracy with 4 pairs<",
        ">accuracy with 8 pairs<",
        ">right answers before the first error<"})
    EXPECT_NE(text.find(words), std::string::npos) << words;
  EXPECT_EQ(text.find(">accuracy at length 32<"), std::string::npos);
  EXPECT_NE(text.find("<math"), std::string::npos);  // the equations of the mixers
}

TEST(ComparePage, ARunAloneIsAReport) {
  CompareResult r = one_seed("accuracy", false);
  r.options.task = "mqar";
  EXPECT_EQ(compare_page(r).title, "horner compare: mqar");
  r.options.mixers.clear();  // runs of `horner train`
  EXPECT_EQ(compare_page(r).title, "horner report: mqar");
}

TEST(ComparePage, SaysWhichWayIsBetter) {
  const std::string loss = html(compare_page(one_seed("loss", true)));
  EXPECT_NE(loss.find("Down is the better fit"), std::string::npos);
  EXPECT_EQ(loss.find("Up is the better fit"), std::string::npos);
  EXPECT_NE(loss.find("loss, lower is better"), std::string::npos);
  EXPECT_NE(
      loss.find("<button type=\"button\">loss</button><small>lower is better</small>"),
      std::string::npos
  );
  const std::string accuracy = html(compare_page(one_seed("accuracy", false)));
  EXPECT_NE(accuracy.find("Up is the better fit"), std::string::npos);
  EXPECT_NE(accuracy.find("accuracy, higher is better"), std::string::npos);
}

TEST(ComparePage, CrossoversInWords) {
  CompareResult r = one_seed("accuracy", false);
  using Kind = Crossover::Kind;
  r.rows[1].memory_crossover = 0;
  const auto faster = [&](const Crossover& c) {
    r.rows[1].time_crossover = c;
    return compare_table(r).rows[1][5];
  };
  EXPECT_EQ(compare_table(r).rows[0][4], "-");  // softmax is not compared with itself
  EXPECT_EQ(compare_table(r).rows[0][5], "-");
  EXPECT_EQ(compare_table(r).rows[1][4], "always");
  EXPECT_EQ(faster({Kind::between, 512, 2048}), "512 .. 2048");
  EXPECT_EQ(faster({Kind::between, 0, 2048}), "at most 2048");
  EXPECT_EQ(faster({Kind::not_resolved}), "not resolved");
  EXPECT_EQ(faster({Kind::never}), "never");
}

TEST(ComparePage, OneNumberHasOneSign) {
  CompareResult r = one_seed("accuracy", false);
  r.baselines = {{"chance", .1, "any"}};
  for (const double x : {1e-9, -1e-9}) {
    r.differences[0].seeds = t_interval({x, x, x});
    r.differences[0].examples = {x, -1e-6, 1e-6, 10, 10};
    for (const std::string& text :
         {html(compare_page(r)), svg(difference_bars(r)), compare_text(r, 0)}) {
      EXPECT_EQ(text.find("-0.000"), std::string::npos) << text;
      EXPECT_EQ(text.find("+0.000"), std::string::npos) << text;
    }
  }
  const std::string text = compare_text(r, 80);  // the rule is a line of its own, not a row
  EXPECT_NE(text.find("Without learning: chance 0.1 (any)."), std::string::npos) << text;
}

TEST(ComparePage, VerdictHasItsColour) {
  CompareResult r = one_seed("accuracy", false);
  r.verdict = "gla is worse.";
  EXPECT_EQ(compare_page(r).tone, Tone::bad);
  r.smaller = true;
  EXPECT_EQ(compare_page(r).tone, Tone::good);
  r.differences[0].examples = {0, -.1, .1, 10, 10};
  EXPECT_EQ(compare_page(r).tone, Tone::open);
  EXPECT_NE(html(compare_page(r)).find("<p class=\"verdict open\">"), std::string::npos);
}

TEST(ComparePage, BaselinesAreDrawnBesideMixersWithoutState) {
  CompareResult r = one_seed("accuracy", false);
  r.rows[1].state_bytes = 0;
  r.baselines = {{"chance", .1, "any"}};
  const Chart chart = score_chart(r);
  EXPECT_GT(chart.series.back().points[0].x, 0);
}

TEST(ComparePage, EverythingIsEscaped) {
  const std::string bad = "</script><script>alert(1)</script>";
  CompareResult r = one_seed(bad, false);
  r.options.task = r.verdict = r.reference = bad;
  r.warnings = {bad};
  r.origin = {{bad, bad}};
  r.baselines = {{bad, .1, bad}};
  r.rows[1].mixer = r.rows[1].settings = r.rows[1].lr_note = r.differences[0].a = bad;
  r.rows[1].slices[bad] = r.rows[1].score;
  r.rows[1].grid[0] = r.rows[1].score;
  r.maps = {{bad, 1, {1}}};
  CompareRun run;
  run.mixer = run.failure = bad;
  r.runs = {run};
  EXPECT_EQ(html(compare_page(r)).find("<script>alert"), std::string::npos);
}

}  // namespace
}  // namespace horner
