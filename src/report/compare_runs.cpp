// What the mixers cost, how they were trained, what they read.
#include <fmt/format.h>

#include <cmath>

#include "core/options.h"
#include "report/compare_charts.h"
#include "report/compare_sections.h"
#include "report/compare_table.h"

namespace horner {
namespace {

Cell crossover_cell(double T) {
  return {crossover_text(T), T < 0 ? 1e300 : T};  // never sorts last
}

Cell crossover_cell(const Crossover& c) {
  using Kind = Crossover::Kind;
  const double place = c.kind == Kind::always    ? 0
                       : c.kind == Kind::between ? double(c.high)
                       : c.kind == Kind::never   ? 1e300
                                                 : std::nan("");
  return {crossover_text(c), place};
}

// "2.59 k (2.4 k .. 2.7 k)"
Cell decode_cell(const SpeedPoint& p) {
  if (p.decode <= 0) return {"-"};
  return {
      .text = flops_text(p.decode),
      .number = p.decode,
      .note = fmt::format("{} .. {}", flops_text(p.decode_p10), flops_text(p.decode_p90))};
}

SortTable grid_table(const CompareResult& r) {
  SortTable table{{"mixer", "learning rate", {"validation", better_of(r)}, "chosen"}, {}};
  for (size_t i = 0; i < r.rows.size(); ++i) {
    const CompareRow& row = r.rows[i];
    for (const auto& [lr, valid] : row.grid) {
      table.rows.push_back(
          {mixer_cell(r, i),
           lr_cell(lr),
           interval_cell(valid),
           {lr == row.lr ? "yes " + row.lr_note : ""}}
      );
      table.keys.push_back(row.mixer);
    }
  }
  return table;
}

SortTable run_table(const CompareResult& r) {
  SortTable table{
      {"mixer",
       "lr",
       "seed",
       {"validation", better_of(r)},
       {"test", better_of(r)},
       "steps",
       "seconds",
       "folder"},
      {}};
  const auto score = [&](const Scores& scores) {
    const auto found = scores.values.find(r.metric);
    return found == scores.values.end() ? Cell{"-"} : cell(found->second);
  };
  for (const CompareRun& run : r.runs) {
    const TrainResult& t = run.result;
    table.rows.push_back(
        {{run.mixer},
         lr_cell(run.lr),
         whole_cell(run.seed),
         score(t.valid),
         score(t.test),
         {fmt::format("{}{}", t.steps, t.stopped.empty() ? "" : ", " + t.stopped), double(t.steps)},
         {fmt::format("{:.1f}", t.seconds), t.seconds},
         {run.failure.empty() ? t.folder : "failed: " + run.failure}}
    );
    table.keys.push_back(run.mixer);
  }
  return table;
}

}  // namespace

Section cost_section(const CompareResult& r) {
  SortTable table{
      {"mixer",
       {"train tokens/s", Better::higher},
       {"prefill tokens/s", Better::higher},
       {"decode tokens/s", Better::higher},
       "at T",
       {"peak memory", Better::lower},
       {"smaller than softmax from T", Better::lower},
       {"decodes faster from T", Better::lower}},
      {}};
  const auto speed = [](double x) { return x > 0 ? Cell{flops_text(x), x} : Cell{"-"}; };
  add_mixer_rows(r, table, [&](const CompareRow& row) {
    const SpeedPoint last = row.speed.empty() ? SpeedPoint{} : row.speed.back();
    return std::vector<Cell>{
        speed(row.train_speed),
        speed(last.prefill),
        decode_cell(last),
        last.T > 0 ? whole_cell(last.T) : Cell{"-"},
        row.peak_bytes > 0 ? cell_bytes(row.peak_bytes) : Cell{"-"},
        crossover_cell(row.memory_crossover),
        crossover_cell(row.time_crossover)};
  });
  table.caption = "Training: as it ran, beside other runs.";
  if (has_points(decode_chart(r)))
    table.caption = fmt::format(
        "One sequence, at the longest length that was measured. Decoding: the median of {} tokens "
        "in {} rounds, with the 10th and 90th percentile. {} \"never\": at none of the measured "
        "lengths. \"not resolved\": the speeds of the mixer and of softmax vary more than they "
        "differ. \"-\": not measured, or softmax itself.",
        kSpeedRounds * kSpeedSteps,
        kSpeedRounds,
        table.caption
    );
  std::string body;
  if (const Chart chart = decode_chart(r); has_points(chart))
    body += figure(chart, "Bars: from the 10th to the 90th percentile.");
  for (const Chart& chart : {prefill_chart(r), state_chart(r)}) {
    if (has_points(chart)) body += figure(chart);
  }
  drop_empty_columns(table);
  return {"Cost", body + sortable(table)};
}

Section maps_section(const CompareResult& r) {
  std::vector<std::string> pictures;
  for (const MixerMap& m : r.maps)
    pictures.push_back(figure(HeatMap{m.mixer, "t", "s", m.T, m.T, m.values}));
  return {
      "Who reads whom",
      paragraph("The first head of each trained mixer on the first test example: row t reads "
                "columns s. Blue is positive, orange negative."
      ) + side_by_side(pictures)};
}

Section runs_section(const CompareResult& r) {
  Json options = to_json(r.options);
  options["mixers"] = r.options.mixers;
  return {
      "Runs",
      figure(
          curve_chart(r), "Mean over seeds; bands: 95 % interval, where there are seeds for one."
      ) + folded("Learning rates, chosen on validation", sortable(grid_table(r))) +
          folded("Every run", sortable(run_table(r))) +
          folded("Settings", code(options.dump(2)) + code(r.task.dump(2)))};
}

}  // namespace horner
