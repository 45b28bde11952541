#include "report/theory_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/maths.h"

namespace horner::theory {
namespace {

// Marks with intervals where it was measured, a dashed line of the same colour where a closed form says.
void add(horner::Chart& chart, const Curve& curve, const std::string& name, int colour) {
  Line measured{.name = name, .colour = colour}, closed{.name = "", .colour = colour};
  closed.dashed = true;
  closed.marks = false;
  for (const Point& p : curve.points) {
    const Interval i = interval(p.measured);
    measured.points.push_back(
        {double(p.L), p.measured.value, std::max(i.low, p.measured.value / 100), i.high}
    );
    if (p.predicted) closed.points.push_back({.x = double(p.L), .y = *p.predicted});
  }
  // A constant that is reached only at enormous L would hide what was measured.
  const Point& last = curve.points.back();
  const bool near = last.predicted && *last.predicted < 3 * last.measured.value;
  measured.line = !near;
  chart.series.push_back(measured);
  if (near) chart.series.push_back(closed);
}

Chart chart_over_L(const std::string& title, const std::string& y) {
  return {
      .title = title,
      .x = {.label = "prompt length L", .log = true, .base = 2},
      .y = {.label = y, .log = true}};
}

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

Chart trajectories(const Report& report, const std::string& kind) {
  Chart chart{
      .title = "Training: " + kind + " covariance",
      .x = {.label = "time"},
      .y = {.label = "R∞ of the parameters, lower is better", .log = true}};
  int colour = 0;
  double end = 0;
  for (const Trajectory& t : report.trajectories) {
    if (t.covariance != kind) continue;
    if (!t.time.empty()) end = std::max(end, t.time.back());
    Line series{.name = t.L == 0 ? "linear flow" : fmt::format("L = {}", t.L), .colour = colour++};
    series.marks = false;
    series.dashed = t.L == 0;
    for (size_t i = 0; i < t.time.size(); ++i)
      if (t.risk[i] >= 1e-6) series.points.push_back({.x = t.time[i], .y = t.risk[i]});
    chart.series.push_back(series);
  }
  chart.x.low = 0;
  if (end > 0) chart.x.high = end;
  return chart;
}

Tone tone_of(const std::string& verdict) {
  if (verdict == "holds") return Tone::good;
  return verdict == "not shown" ? Tone::open : Tone::bad;
}

SortTable claim_table(const Report& report) {
  SortTable table{{"verdict", "part", "claim", "measured", "interval of 95 %", "expected"}, {}};
  for (const Claim& c : report.claims) {
    const std::string band = std::isinf(c.most) ? fmt::format("above {:.4g}", c.least)
                             : std::isinf(c.least)
                                 ? fmt::format("below {:.4g}", c.most)
                                 : fmt::format("{:.4g} .. {:.4g}", c.least, c.most);
    table.rows.push_back(
        {{.text = c.verdict(), .tone = tone_of(c.verdict())},
         {c.part},
         {c.statement},
         cell(c.measured.value),
         {c.measured.low == c.measured.high
              ? "exact"
              : fmt::format("{:.4g} .. {:.4g}", c.measured.low, c.measured.high)},
         {band}}
    );
  }
  return table;
}

SortTable curve_table(const Report& report, const std::string& part) {
  SortTable table{{"setting", "quantity", "L", "measured", "closed form", "exponent"}, {}};
  for (const Curve& curve : report.curves) {
    if (curve.part != part) continue;
    const auto k = curve.exponent();
    for (const Point& p : curve.points) {
      table.rows.push_back(
          {{curve.name},
           {curve.quantity},
           cell(double(p.L)),
           cell_interval(p.measured.value, interval(p.measured).high - p.measured.value),
           p.predicted ? cell(*p.predicted) : Cell{"-"},
           k ? cell_interval(k->value, k->high - k->value) : Cell{"-"}}
      );
    }
  }
  return table;
}

struct Words {
  const char *part, *title, *text;
};

constexpr const char* kMarks =
    "Marks: measured, with intervals of 95 %. Dashed: the closed form. A solid line joins marks "
    "for "
    "which there is none, or one that only far longer prompts reach.";

Section definitions() {
  return {
      "What is compared",
      paragraph("Softmax attention over a prompt of L tokens, and what it tends to as L grows: a "
                "linear function of the query.") +
          maths("T_L = sum_i softmax_i(a x_i^T) x_i W, T = (m + a Gamma) W, a = z U") +
          facts(
              {{"xᵢ", "token i of the prompt, a row of d numbers drawn from N(m, Γ)"},
               {"m, Γ", "mean and covariance of the tokens"},
               {"z", "the query, which is not in the prompt"},
               {"U", "the matrix that turns a query into logits: z U xᵢ⊤"},
               {"a", "z U: the logits are a xᵢ⊤"},
               {"W", "the matrix of values"},
               {"T", "the output: with index L at length L, without one its limit"}}
          )};
}

std::string regression_words() {
  return maths("y_i = x_i w^T, prediction = b sum_i softmax_i(x A x_i^T) y_i") +
         facts(
             {{"xᵢ, yᵢ", "the examples of the prompt; the xᵢ have mean 0 and covariance Σ"},
              {"w", "the weights to be found, drawn anew for each prompt"},
              {"A, b", "what the layer learns: its U and its W"},
              {"t",
               "any number above 0: the layers A = tΣ⁻¹, b = 1/t predict exactly in the limit"},
              {"c", "the t in which gradient descent of the limit ends: tr(Σ⁻²) to the power -1/4"},
              {"R∞", "the risk with an endless prompt: half the mean squared error"}}
         );
}

const Words kWords[] = {
    {"concentration",
     "One query, longer and longer prompts",
     "Softmax over L Gaussian tokens against its limit (m + aΓ)W, and its gradients against "
     "theirs. The closed form is the leading term, which holds once L is far above exp(sd²), sd "
     "being the standard deviation of the logits."},
    {"random query",
     "Random queries",
     "With z ~ N(0, I) large queries dominate: the exponent falls smoothly from 1 as the logits "
     "grow, and nothing marks the scale at which the leading constant stops to exist."},
    {"regression",
     "In-context regression at given parameters",
     "A = tΣ⁻¹, b = 1/t predicts exactly in the limit, whatever t is. At finite L a small t "
     "has the closed risk; the scale t = c, in which the flow ends, falls more slowly."},
    {"dynamics",
     "Training at length L",
     "Gradient descent of softmax on fresh prompts of L tokens beside that of its linear limit, "
     "same start and steps. R∞ tells how good the parameters would be with an endless prompt. "
     "Once the limit is learnt, softmax drifts on along A = tΣ⁻¹, b = 1/t towards smaller t."},
};

}  // namespace

std::string verdict(const Report& report) {
  size_t holds = 0, open = 0;
  for (const Claim& c : report.claims) {
    holds += c.verdict() == "holds";
    open += c.verdict() == "not shown";
  }
  std::string text = fmt::format("{} of {} claims hold", holds, report.claims.size());
  if (open > 0) text += fmt::format(", {} not shown", open);
  if (const size_t n = report.refuted(); n > 0)
    text += fmt::format(", {} {} not hold", n, n == 1 ? "does" : "do");
  return text + ".";
}

std::vector<NamedChart> charts(const Report& report) {
  Chart errors = chart_over_L(
      "Errors at one query (identity, logit sd 0.6)", "mean squared error, lower is better"
  );
  Chart scales = chart_over_L("Output error, larger logits", "mean squared error, lower is better");
  Chart queries =
      chart_over_L("Output error, random queries", "mean squared error, lower is better");
  Chart risks = chart_over_L("Risk of in-context regression", "risk, lower is better");
  Chart trained = chart_over_L("After training (identity)", "risk or distance, lower is better");
  int error = 0, scale = 0, query = 0, risk = 0, after = 0;
  for (const Curve& c : report.curves) {
    if (c.part == "concentration" && c.name == "identity, logit sd 0.6")
      add(errors, c, c.quantity, error++);
    if (c.part == "concentration" && c.quantity == "output" && starts_with(c.name, "identity"))
      add(scales, c, c.name.substr(10), scale++);
    if (c.part == "random query") add(queries, c, c.name, query++);
    if (c.part == "regression" && starts_with(c.name, "identity"))
      add(risks, c, c.quantity.substr(0, 7) + c.name.substr(9), risk++);
    if (c.part == "dynamics" && c.name == "identity") add(trained, c, c.quantity, after++);
  }
  std::vector<NamedChart> list = {
      {"errors", errors}, {"logits", scales}, {"random_query", queries}, {"regression", risks}};
  if (report.trajectories.empty()) return list;
  list.push_back({"training_identity", trajectories(report, "identity")});
  list.push_back({"training_toeplitz", trajectories(report, "toeplitz")});
  list.push_back({"trained", trained});
  return list;
}

Page page(const Report& report) {
  Page page{.title = "horner theory"};
  page.verdict =
      "Does softmax over a long Gaussian prompt become linear attention? " + verdict(report);
  bool all = true;
  for (const Claim& c : report.claims) {
    all = all && c.verdict() == "holds";
    if (c.verdict() != "does not hold") continue;
    const auto* words = std::find_if(std::begin(kWords), std::end(kWords), [&](const Words& w) {
      return c.part == w.part;
    });
    page.warnings.push_back(
        (words == std::end(kWords) ? c.part : words->title) + (": " + c.sentence())
    );
  }
  const bool open = std::any_of(report.claims.begin(), report.claims.end(), [](const Claim& c) {
    return c.verdict() == "not shown";
  });
  if (open)
    page.verdict +=
        " Not shown: the interval crosses an edge of what is expected; more --repeats would "
        "decide.";
  page.sections.push_back(definitions());
  page.tone = report.refuted() > 0 ? Tone::bad : all ? Tone::good : Tone::open;
  std::vector<std::string> pictures;
  for (const NamedChart& named : charts(report)) {
    const bool over_L = !starts_with(named.name, "training");
    pictures.push_back(figure(named.chart, over_L ? kMarks : ""));
  }
  size_t next = 0;
  for (const Words& words : kWords) {
    const size_t count = words.part == std::string("concentration") ? 2
                         : words.part == std::string("dynamics")    ? pictures.size() - next
                                                                    : 1;
    if (count == 0) continue;
    std::string own;
    for (size_t i = next; i < next + count; ++i) own += pictures[i];
    next += count;
    page.sections.push_back(
        {words.title,
         paragraph(words.text) +
             (words.part == std::string("regression") ? regression_words() : "") + own +
             folded("Every number", sortable(curve_table(report, words.part)))}
    );
  }
  page.sections.push_back(
      {"Claims",
       folded(fmt::format("Every claim: {}", verdict(report)), sortable(claim_table(report)))}
  );
  return page;
}

}  // namespace horner::theory
