#include "report/certificate_steps.h"

#include <fmt/format.h>

#include "core/number.h"

namespace horner {

Cell percent_change(double x) { return {signed_number(100 * x, 1) + " %", x}; }

// What training minimised, by tokens.
Chart training_chart(const ConvertStep& step) {
  const bool align = step.name == "align";
  Chart chart{
      align ? "align: error of mixers on the teacher's inputs" : "distil: KL to the teacher",
      {"tokens"},
      {align ? "error |ô - o|² / |o|² of a batch, lower is better"
             : "KL of a batch, nats, lower is better",
       true}};
  Line line{.name = step.name, .marks = false, .colour = align ? 1 : 0};
  for (const auto& [tokens, loss] : step.curve) line.points.push_back({double(tokens), loss});
  chart.series = {line};
  return chart;
}

Section steps_section(const Certificate& c) {
  SortTable table{
      {"after the step",
       {"tokens"},
       {"KL to the teacher", Better::lower},
       {"perplexity", Better::lower},
       {"perplexity against the teacher's"},
       {"same top token", Better::higher},
       {"seconds", Better::lower}},
      {}};
  std::vector<std::string> charts;
  for (const ConvertStep& step : c.steps) {
    table.rows.push_back(
        {{step.name},
         {short_count(double(step.tokens)), double(step.tokens)},
         cell_interval(step.kl.mean, step.kl.half),
         cell(step.perplexity),
         percent_change(step.change),
         {fmt::format("{:.1f} %", 100 * step.same_top), step.same_top},
         {fmt::format("{:.0f}", step.seconds), step.seconds}}
    );
    if (!step.curve.empty()) charts.push_back(figure(training_chart(step)));
  }
  return {"What each step brought", sortable(table) + side_by_side(charts)};
}

}  // namespace horner
