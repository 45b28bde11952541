// What the mixers cost, how they were trained, what they read.
#include <fmt/format.h>

#include "core/options.h"
#include "report/compare_charts.h"
#include "report/compare_sections.h"
#include "report/compare_table.h"

namespace horner {
namespace {

Cell crossover_cell(double T) {
  return {crossover_text(T), T < 0 ? 1e300 : T};  // never sorts last
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
        speed(last.decode),
        last.T > 0 ? whole_cell(last.T) : Cell{"-"},
        cell_bytes(row.peak_bytes),
        crossover_cell(memory_crossover_of(row)),
        crossover_cell(time_crossover_of(row))};
  });
  table.caption =
      "Medians after a warm-up, one sequence, at the longest length that was measured; training as "
      "it ran, beside other runs. \"never\": at none of the measured lengths. \"-\": not measured, "
      "or softmax itself.";
  std::string body;
  for (const Chart& chart : {decode_chart(r), prefill_chart(r), state_chart(r)}) {
    if (has_points(chart)) body += figure(chart);
  }
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
