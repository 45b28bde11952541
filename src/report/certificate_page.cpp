#include "report/certificate_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/number.h"
#include "report/certificate_steps.h"
#include "report/equations.h"
#include "report/palette.h"

namespace horner {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kFourBits = .03;  // the KL that 4-bit quantisation (Q4_K_M) costs

std::string name_of(const std::string& path) { return std::filesystem::path(path).filename(); }

HeadGrid grid_of(
    const Certificate& c, const std::string& title, double (*value)(const HeadError&)
) {
  HeadGrid g{title, " %", c.layers};
  for (const HeadError& e : c.heads) g.heads = std::max(g.heads, e.head + 1);
  g.values.assign(size_t(g.layers * g.heads), kNone);
  g.high = 0;
  for (const HeadError& e : c.heads) {
    const double x = 100 * value(e);
    g.values[size_t(e.layer * g.heads + e.head)] = x;
    g.high = std::max(g.high, x);
  }
  return g;
}

HeadGrid error_grid(const Certificate& c) {
  return grid_of(c, "Relative error of the output", [](const HeadError& e) { return e.relative; });
}

HeadGrid tail_grid(const Certificate& c) {
  return grid_of(c, "Softmax's weight beyond the window", [](const HeadError& e) {
    return e.tail;
  });
}

HeadGrid bound_grid(const Certificate& c) {
  HeadGrid g = grid_of(c, "Proved bound, of what is possible", [](const HeadError& e) {
    return e.bound.value_or(kNone);
  });
  g.high = 100;
  return g;
}

bool has_bounds(const Certificate& c) {
  return std::any_of(c.heads.begin(), c.heads.end(), [](const HeadError& e) { return e.bound; });
}

Chart position_chart(const Certificate& c) {
  Chart chart{
      "KL to the teacher by position",
      {"position in the window", true, 2},
      {"KL in nats, lower is better"}};
  chart.y.low = 0;
  const auto add = [&](const std::string& name, const TextScore& score, int colour, bool dashed) {
    Line line{.name = name, .dashed = dashed, .colour = colour};
    for (const PositionScore& p : score.by_position) line.points.push_back({double(p.from), p.kl});
    chart.series.push_back(std::move(line));
  };
  const int own = mixer_colour(c.to);
  add("converted", c.score, own, false);
  if (c.window_only) add("window only", *c.window_only, mixer_colour("window"), false);
  if (c.state_only) add("state only", *c.state_only, own + kColours, true);  // a tint
  return chart;
}

Chart state_chart(const Certificate& c) {
  Chart chart{
      "State of one sequence",
      {"tokens read", true, 2},
      {"bytes in fp32, lower is better", true, 2, true}};
  Line student{.name = "converted", .colour = mixer_colour(c.to)},
      teacher{.name = "teacher", .dashed = true, .colour = kGrey};
  for (const StateSize& s : c.states) {
    student.points.push_back({double(s.T), double(s.student)});
    teacher.points.push_back({double(s.T), double(s.teacher)});
  }
  chart.series = {student, teacher};
  return chart;
}

Chart plan_chart(const Certificate& c) {
  const Planning& p = *c.planning;
  Chart chart{
      "Every plan that was tried",
      {"bytes of state, lower is better"},
      {"KL to the teacher, nats, lower is better"}};
  chart.x.bytes = true;
  chart.y.low = 0;
  Line plans{.name = "dearest layers kept", .colour = mixer_colour(c.to)};
  Line rule{.name = "every=4", .line = false, .colour = kGrey};
  for (const LayerPlan& plan : p.tried) {
    Point point{double(plan.state_bytes), plan.kl.mean};
    if (plan.kl.n > 1) point.low = plan.kl.low(), point.high = plan.kl.high();
    point.title = fmt::format(
        "{} softmax layers ({}): KL {:.4f}, state {}",
        plan.kept.size(),
        fmt::join(plan.kept, ", "),
        plan.kl.mean,
        short_bytes(double(plan.state_bytes))
    );
    (plan.name == "plan" ? plans : rule).points.push_back(std::move(point));
  }
  chart.series = {plans, rule};
  return chart;
}

std::string gain_words(const Planning& p) {
  const LayerPlan& every = p.tried.back();
  if (every.kept.empty())
    return "every=4 keeps no layer of so small a model: nothing to compare with.";
  const std::string with = fmt::format(
      "With {} softmax {} the KL of the plan is {:.2g} nats below that of every=4",
      every.kept.size(),
      every.kept.size() == 1 ? "layer" : "layers",
      p.gain.mean
  );
  const std::string interval =
      p.gain.n > 1 ? fmt::format(" ({:.2g} .. {:.2g})", p.gain.low(), p.gain.high()) : "";
  const bool sure = p.gain.n > 1 && p.gain.low() > 0;
  return with + interval + (sure ? "." : ": the plan is not shown to be better.");
}

std::vector<Cell> score_row(const std::string& name, const TextScore& s) {
  return {
      {name},
      cell_interval(s.against->kl.mean, s.against->kl.half),
      cell(s.perplexity()),
      percent_change(std::expm1(s.nats.mean - s.against->nats)),
      {fmt::format("{:.1f} %", 100 * s.against->same_top), s.against->same_top}};
}

// Why a perplexity below the teacher's is no gain; empty: it is not below.
std::string no_gain(const Certificate& c) {
  if (signed_number(100 * c.perplexity_change(), 1)[0] != '-') return "";
  return c.training_tokens() > 0 ? "no gain: training taught the student this kind of text"
                                 : "no gain: this text is foreign to the teacher";
}

Section score_section(const Certificate& c) {
  SortTable table{
      {"model",
       {"KL to the teacher", Better::lower},
       {"perplexity", Better::lower},
       {"perplexity against the teacher's"},
       {"same top token", Better::higher}},
      {}};
  table.rows.push_back(score_row("converted", c.score));
  if (c.window_only) table.rows.push_back(score_row("its window only", *c.window_only));
  if (c.state_only)
    table.rows.push_back(score_row("its state only (window 1, no sinks)", *c.state_only));
  std::string yardstick =
      "The KL measures what was lost. A yardstick: 4-bit quantisation of weights (Q4_K_M) costs a "
      "KL of about 0.03, 8 bits 0.0014.";
  if (const std::string why = no_gain(c); !why.empty())
    yardstick += fmt::format(" A perplexity below the teacher's is {}.", why);
  return {
      "What was lost",
      sortable(table) + paragraph(yardstick) +
          figure(
              position_chart(c),
              "A point stands for the positions from its own to the next. Where the window holds "
              "the whole past, nothing can "
              "be lost."
          ) +
          equations({{"converted layers", c.to}, {"layers of the teacher", "softmax"}})};
}

Section heads_section(const Certificate& c) {
  std::vector<std::string> grids = {figure(error_grid(c)), figure(tail_grid(c))};
  if (has_bounds(c)) grids.push_back(figure(bound_grid(c)));
  std::string body = paragraph(
      "Each head alone, on what its layer reads in the teacher: how far its output is from "
      "softmax's, as a share of softmax's output. Empty rows are layers that stay softmax. In all "
      "maps a cell nearer to 0 is better: less error, less weight that the window misses."
  );
  body += side_by_side(grids);
  if (has_bounds(c)) {
    double vacuous = 0;
    for (const HeadError& e : c.heads) vacuous += e.vacuous / double(c.heads.size());
    body += paragraph(fmt::format(
        "The bound is proved in docs/certificate.md; 100 % is what two averages of values can "
        "differ by at most, and says nothing. It says nothing at {:.1f} % of the tokens, on "
        "average "
        "over heads.",
        100 * vacuous
    ));
  } else {
    body += paragraph("No bound is known for this mixer: its weights are no series of softmax's.");
  }
  return {"Where it was lost", body};
}

Section state_section(const Certificate& c) {
  SortTable sizes{{"tokens", {"converted", Better::lower}, {"teacher", Better::lower}}, {}};
  for (const StateSize& s : c.states)
    sizes.rows.push_back(
        {{std::to_string(s.T), double(s.T)},
         cell_bytes(double(s.student)),
         cell_bytes(double(s.teacher))}
    );
  return {"What was won", figure(state_chart(c)) + sortable(sizes)};
}

Section written_section(const Certificate& c) {
  std::string body;
  if (c.generated) {
    const GeneratedMatch& g = *c.generated;
    body += paragraph(fmt::format(
        "Both models went on from {} prompts of {} tokens, always with the likeliest token. Of the "
        "{} "
        "tokens of a text, {:.1f} came before the first difference, on average; {:.0f} % of the "
        "texts were equal.",
        g.texts,
        g.prompt,
        g.tokens,
        g.prefix,
        100 * g.same_texts
    ));
  }
  if (c.needles.empty()) return {"What it writes", body};
  SortTable table{
      {"tokens", {"converted found", Better::higher}, {"teacher found", Better::higher}, "asked"},
      {}};
  for (const NeedleRecall& n : c.needles)
    table.rows.push_back(
        {{std::to_string(n.T), double(n.T)},
         {fmt::format("{:.0f} %", 100 * n.student), n.student},
         {fmt::format("{:.0f} %", 100 * n.teacher), n.teacher},
         {std::to_string(n.asked), double(n.asked)}}
    );
  return {
      "What it writes",
      body + paragraph("A number is said somewhere in a text and asked for at its end.") +
          sortable(table)};
}

std::string kept_words(const Certificate& c) {
  return c.kept.empty() ? "no softmax layer"
                        : fmt::format("{} of {} layers softmax", c.kept.size(), c.layers);
}

std::string perplexity_words(const Certificate& c) {
  const std::string text =
      fmt::format("perplexity {} %", signed_number(100 * c.perplexity_change(), 1));
  const std::string why = no_gain(c);
  return why.empty() ? text : fmt::format("{} ({})", text, why);
}

std::string training_words(const Certificate& c) {
  const int64_t tokens = c.training_tokens();
  return tokens == 0 ? "without training"
                     : fmt::format("trained on {} tokens", short_count(double(tokens)));
}

// Green: as near to the teacher as 4-bit weights are. Red: dropping what is beyond the window would be nearer.
Tone certificate_tone(const Certificate& c) {
  const double kl = c.score.against->kl.mean;
  if (c.window_only && c.window_only->against->kl.mean < kl) return Tone::bad;
  return kl <= kFourBits ? Tone::good : Tone::open;
}

}  // namespace

std::string certificate_verdict(const Certificate& c) {
  const StateSize& s = c.states.back();
  const std::string lost = fmt::format(
      "{} as {} with {}, {}: KL to the teacher {:.3f} nats, {}, the same most likely token at "
      "{:.1f} % of the positions. After {} tokens its state has {} instead of "
      "{}.",
      name_of(c.teacher),
      c.to,
      kept_words(c),
      training_words(c),
      c.score.against->kl.mean,
      perplexity_words(c),
      100 * c.score.against->same_top,
      s.T,
      short_bytes(double(s.student)),
      short_bytes(double(s.teacher))
  );
  const double kl = c.score.against->kl.mean;
  if (!c.window_only || c.window_only->against->kl.mean >= kl) return lost;
  return lost + fmt::format(
                    " Its window alone is nearer to the teacher (KL {:.3f} nats): here the state "
                    "does harm.",
                    c.window_only->against->kl.mean
                );
}

std::vector<NamedPicture> certificate_pictures(const Certificate& c) {
  std::vector<NamedPicture> list = {
      {"position", svg(position_chart(c))}, {"state", svg(state_chart(c))}};
  if (!c.heads.empty()) {
    std::vector<std::string> grids = {svg(error_grid(c)), svg(tail_grid(c))};
    if (has_bounds(c)) grids.push_back(svg(bound_grid(c)));
    list.push_back({"heads", tiled("Errors of heads", grids, 3)});
  }
  for (const ConvertStep& step : c.steps) {
    if (!step.curve.empty()) list.push_back({step.name, svg(training_chart(step))});
  }
  if (c.planning) list.push_back({"plans", svg(plan_chart(c))});
  return list;
}

Page certificate_page(const Certificate& c) {
  Page page{"Certificate: " + name_of(c.teacher) + " to " + c.to};
  page.verdict = certificate_verdict(c);
  page.tone = certificate_tone(c);
  page.sections.push_back(score_section(c));
  if (c.training_tokens() > 0) page.sections.push_back(steps_section(c));
  if (!c.heads.empty()) page.sections.push_back(heads_section(c));
  if (c.generated || !c.needles.empty()) page.sections.push_back(written_section(c));
  page.sections.push_back(state_section(c));
  if (c.planning)
    page.sections.push_back(
        {"Which layers stay softmax",
         figure(plan_chart(c), gain_words(*c.planning)) +
             paragraph(
                 fmt::format("Measured on {} tokens of the calibration text.", c.planning->tokens)
             )}
    );
  page.sections.push_back(
      {"How it was measured",
       facts(
           {{"text", fmt::format("{}", fmt::join(c.text, ", "))},
            {"calibrated on", fmt::format("{} tokens", c.calibration_tokens)},
            {"trained on", fmt::format("{} tokens", c.training_tokens())},
            {"measured on", c.test},
            {"tokens", fmt::format("{} in windows of {}", c.score.tokens, c.context)},
            {"softmax layers",
             c.kept.empty() ? "none" : fmt::format("{}", fmt::join(c.kept, ", "))},
            {"seconds", fmt::format("{:.2g}", c.seconds)}}
       )}
  );
  return page;
}

std::string model_card(const Certificate& c, const std::string& folder) {
  std::string text = fmt::format(
      "# {0} as {1}\n\nConverted from `{0}` by `horner convert`, {5}. "
      "`certificate.html` shows everything, "
      "`certificate.json` holds it.\n\n```sh\nhorner generate {2} --prompt \"Once upon a "
      "time\"\nhorner score {2} --text FILE "
      "--against {3}\n```\n\n## What was lost\n\n{4}\n\n| | KL to the teacher | perplexity | same "
      "top token |\n| --- | "
      "--- | --- | --- |\n",
      name_of(c.teacher),
      c.to,
      folder,
      c.teacher,
      certificate_verdict(c),
      training_words(c)
  );
  const auto row = [&](const std::string& name, const TextScore& s) {
    text += fmt::format(
        "| {} | {:.4f} | {:.3f} | {:.1f} % |\n",
        name,
        s.against->kl.mean,
        s.perplexity(),
        100 * s.against->same_top
    );
  };
  row("converted", c.score);
  if (c.window_only) row("its window only", *c.window_only);
  if (c.state_only) row("its state only", *c.state_only);
  if (c.training_tokens() > 0) {
    text +=
        "\n| after the step | tokens | KL to the teacher | same top token |\n| --- | --- | --- | "
        "--- |\n";
    for (const ConvertStep& step : c.steps)
      text += fmt::format(
          "| {} | {} | {:.4f} | {:.1f} % |\n",
          step.name,
          short_count(double(step.tokens)),
          step.kl.mean,
          100 * step.same_top
      );
  }
  text += "\n| tokens read | state | teacher's |\n| --- | --- | --- |\n";
  for (const StateSize& s : c.states)
    text += fmt::format(
        "| {} | {} | {} |\n", s.T, short_bytes(double(s.student)), short_bytes(double(s.teacher))
    );
  return text +
         fmt::format(
             "\nMeasured on {} ({} tokens in windows of {}); calibrated on {} other tokens{}.\n",
             c.test,
             c.score.tokens,
             c.context,
             c.calibration_tokens,
             c.training_tokens() > 0 ? ", " + training_words(c) : ""
         );
}

}  // namespace horner
