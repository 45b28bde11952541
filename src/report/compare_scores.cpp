// How good the mixers are: score and state, differences, parts of the test, longer tests.
#include <fmt/format.h>

#include <set>

#include "report/compare_charts.h"
#include "report/compare_sections.h"
#include "report/compare_table.h"
#include "report/palette.h"

namespace horner {

Cell interval_cell(const Interval& interval) { return cell_interval(interval.mean, interval.half); }

Cell whole_cell(int64_t x) { return {std::to_string(x), double(x)}; }

Cell lr_cell(double lr) { return {fmt::format("{:g}", lr), lr}; }

Cell mixer_cell(const CompareResult& r, size_t row) {
  return {.text = r.rows[row].mixer, .colour = row_colours(r)[row]};
}

Cell verdict_cell(const CompareResult& r, const Difference& d) {
  if (!d.shown()) return {.text = "no difference shown", .tone = Tone::open};
  if ((d.seeds.mean < 0) == r.smaller) return {.text = "better", .tone = Tone::good};
  return {.text = "worse", .tone = Tone::bad};
}

Section score_section(const CompareResult& r) {
  SortTable table{
      {"mixer",
       {r.metric, better_of(r)},
       "n",
       {"parameters", Better::lower},
       {"state", Better::lower},
       {"FLOP/token", Better::lower},
       "lr",
       "steps"},
      {}};
  add_mixer_rows(r, table, [&](const CompareRow& row) {
    return std::vector<Cell>{
        interval_cell(row.score),
        whole_cell(row.score.n),
        whole_cell(row.parameters),
        cell_bytes(double(row.state_bytes)),
        {flops_text(row.flops_per_token), row.flops_per_token},
        lr_cell(row.lr),
        whole_cell(row.steps)};
  });
  for (size_t i = 0; i < r.rows.size(); ++i) {
    if (r.rows[i].settings != r.rows[i].mixer) table.rows[i][0].note = r.rows[i].settings;
  }
  for (const Baseline& b : r.baselines) {
    std::vector<Cell> row(table.head.size(), Cell{"-"});
    row[0] = {.text = b.name, .colour = kGrey, .note = b.meaning};
    row[1] = cell(b.score);
    table.rows.push_back(row);
    table.keys.push_back(b.name);
  }
  table.caption = "Mean over seeds ± 95 % t interval; baselines learn nothing.";
  const std::string caption = fmt::format(
      "{} is the better fit, left is less to keep. Bars: 95 % interval over seeds; dashed: what "
      "needs no learning.",
      r.smaller ? "Down" : "Up"
  );
  return {"Score and state", figure(score_chart(r), caption) + sortable(table)};
}

Section difference_section(const CompareResult& r) {
  SortTable table{
      {"mixer",
       {"difference over seeds", better_of(r)},
       "n",
       {"over test examples", better_of(r)},
       "n",
       "verdict"},
      {}};
  for (size_t i = 0; i < r.rows.size(); ++i) {
    for (const Difference& d : r.differences) {
      if (d.a != r.rows[i].mixer) continue;
      table.rows.push_back(
          {mixer_cell(r, i),
           interval_cell(d.seeds),
           whole_cell(d.seeds.n),
           {fmt::format("{:+.4f} .. {:+.4f}", d.examples.low, d.examples.high), d.examples.mean},
           whole_cell(d.examples.n),
           verdict_cell(r, d)}
      );
      table.keys.push_back(d.a);
    }
  }
  table.caption = fmt::format(
      "Each minus {}: paired seeds with Student's 95 % interval; paired bootstrap over test "
      "examples, 10 000 draws, middle 95 %.",
      r.reference
  );
  return {"Differences", figure(difference_bars(r)) + sortable(table)};
}

Section slices_section(const CompareResult& r) {
  std::set<std::string> names;
  for (const CompareRow& row : r.rows) {
    for (const auto& [name, value] : row.slices) names.insert(name);
  }
  SortTable table{{"mixer"}, {}};
  for (const std::string& name : names) {
    const bool lower = name.find("loss") != std::string::npos || (name == r.metric && r.smaller);
    const bool higher = name.find("accuracy") != std::string::npos;
    table.head.emplace_back(
        name,
        lower    ? Better::lower
        : higher ? Better::higher
                 : Better::neither
    );
  }
  add_mixer_rows(r, table, [&](const CompareRow& row) {
    std::vector<Cell> cells;
    for (const std::string& name : names) {
      const auto found = row.slices.find(name);
      cells.push_back(found == row.slices.end() ? Cell{"-"} : interval_cell(found->second));
    }
    return cells;
  });
  const Chart chart = position_chart(r);
  return {"Where it is right", (has_points(chart) ? figure(chart) : "") + sortable(table)};
}

Section lengths_section(const CompareResult& r) {
  std::set<int64_t> lengths;
  for (const CompareRow& row : r.rows) {
    for (const auto& [T, value] : row.lengths) lengths.insert(T);
  }
  const std::string trained = fmt::format("T = {}, as trained", trained_length(r));
  SortTable table{{"mixer", {trained, better_of(r)}}, {}};
  for (const int64_t T : lengths) table.head.emplace_back(fmt::format("T = {}", T), better_of(r));
  add_mixer_rows(r, table, [&](const CompareRow& row) {
    std::vector<Cell> cells = {interval_cell(row.score)};
    for (const int64_t T : lengths) {
      const auto found = row.lengths.find(T);
      cells.push_back(found == row.lengths.end() ? Cell{"-"} : interval_cell(found->second));
    }
    return cells;
  });
  return {"Trained short, tested long", figure(length_chart(r)) + sortable(table)};
}

}  // namespace horner
