// How good the mixers are: score and state, differences, parts of the test, longer tests.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/number.h"
#include "report/compare_charts.h"
#include "report/compare_sections.h"
#include "report/compare_table.h"
#include "report/equations.h"
#include "report/palette.h"

namespace horner {

Cell interval_cell(const Interval& interval) { return cell_interval(interval.mean, interval.half); }

// A difference has its sign: +0.0100 ± 0.0020.
Cell difference_cell(const Interval& interval) {
  Cell cell = interval_cell(interval);
  if (interval.mean > 0 && signed_number(interval.mean, 4)[0] == '+') cell.text = "+" + cell.text;
  return cell;
}

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

// "num_kv_pairs/accuracy-4", as train/evaluate.h names it, for a reader: "accuracy with 4 pairs".
std::string score_words(const std::string& key) {
  if (key == "first error") return "right answers before the first error";
  const size_t slash = key.find('/'), dash = key.rfind('-');
  if (slash == std::string::npos || dash == std::string::npos || dash < slash) return key;
  std::string slice = key.substr(0, slash);
  const std::string metric = key.substr(slash + 1, dash - slash - 1), value = key.substr(dash + 1);
  if (slice == "num_kv_pairs") return fmt::format("{} with {} pairs", metric, value);
  std::replace(slice.begin(), slice.end(), '_', ' ');
  return fmt::format("{} at {} {}", metric, slice, value);
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
    if (row.score.n == 0) {  // no run finished
      std::vector<Cell> cells(table.head.size() - 1, Cell{"-"});
      cells[0] = {.text = "failed", .tone = Tone::bad};
      return cells;
    }
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
  table.caption =
      "Mean over seeds ± 95 % t interval; the last rows are baselines: simple rules without a "
      "model.";
  const std::string caption = fmt::format(
      "{} is the better fit, left is less to keep. Bars: 95 % interval over seeds; dashed: what "
      "needs no learning.",
      r.smaller ? "Down" : "Up"
  );
  std::vector<NamedMixer> mixers;
  for (const CompareRow& row : r.rows) mixers.push_back({row.mixer, row.settings, row.D});
  return {"Score and state", figure(score_chart(r), caption) + sortable(table) + equations(mixers)};
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
           difference_cell(d.seeds),
           whole_cell(d.seeds.n),
           {fmt::format(
                "{} .. {}", signed_number(d.examples.low, 4), signed_number(d.examples.high, 4)
            ),
            d.examples.mean},
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
  // A part that is the whole test says nothing new: the only length, the only number of pairs.
  std::erase_if(names, [parts = names](const std::string& name) {
    const std::string part = name.substr(0, name.rfind('-') + 1);
    return part.find('/') != std::string::npos &&
           std::count_if(parts.begin(), parts.end(), [&](const std::string& other) {
             return other.starts_with(part);
           }) == 1;
  });
  SortTable table{{"mixer"}, {}};
  for (const std::string& name : names) {
    const bool lower = name.find("loss") != std::string::npos || (name == r.metric && r.smaller);
    const bool higher = name.find("accuracy") != std::string::npos;
    table.head.emplace_back(
        score_words(name),
        lower                             ? Better::lower
        : higher || name == "first error" ? Better::higher
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
