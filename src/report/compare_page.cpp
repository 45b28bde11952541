#include "report/compare_page.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "report/compare_charts.h"
#include "report/compare_table.h"

namespace horner {
namespace {

Cell crossover_cell(const Json& value) {
  const double T = number(value);
  return {crossover_text(value), T < 0 ? 1e300 : T};  // never sorts last
}

Cell score_cell(const Json& interval) {
  return cell_interval(number(interval["mean"]), number(interval["half"]));
}

Section score_section(const Json& j) {
  SortTable table{
      {"mixer",
       j["metric"].get<std::string>(),
       "n",
       "parameters",
       "state",
       "FLOP/token",
       "lr",
       "steps"},
      {}};
  for (const Json& row : j["rows"]) {
    const double flops = number(row["flops_per_token"]);
    table.rows.push_back(
        {{row["settings"].get<std::string>().empty() ? row["mixer"] : row["settings"]},
         score_cell(row["score"]),
         cell(number(row["score"]["n"])),
         {fmt::format("{}", row["parameters"].get<int64_t>()), number(row["parameters"])},
         cell_bytes(number(row["state_bytes"])),
         {flops_text(flops), flops},
         {fmt::format("{:g}", number(row["lr"])), number(row["lr"])},
         cell(number(row["steps"]))}
    );
  }
  for (const Json& b : j["baselines"])
    table.rows.push_back(
        {{fmt::format("{}: {}", b["name"].get<std::string>(), b["meaning"].get<std::string>())},
         cell(number(b["score"])),
         {"-"},
         {"-"},
         {"-"},
         {"-"},
         {"-"},
         {"-"}}
    );
  table.caption = "Mean over seeds ± 95 % t interval; baselines learn nothing.";
  return {
      "Score and state",
      figure(
          svg(score_chart(j)),
          "Up is better fit, left is less to keep. Bars: 95 % interval over seeds; dashed: what "
          "needs no "
          "learning."
      ) + sortable(table)};
}

Section difference_section(const Json& j) {
  SortTable table{
      {"mixer", "difference over seeds", "n", "over test examples", "n", "verdict"}, {}};
  for (const Json& d : j["differences"]) {
    const Json& e = d["examples"];
    const bool better = (number(d["seeds"]["mean"]) < 0) == j["smaller_is_better"].get<bool>();
    table.rows.push_back(
        {{d["a"].get<std::string>()},
         score_cell(d["seeds"]),
         cell(number(d["seeds"]["n"])),
         {fmt::format("{:+.4f} .. {:+.4f}", number(e["low"]), number(e["high"])),
          number(e["mean"])},
         cell(number(e["n"])),
         {!d["shown"].get<bool>() ? "no difference shown"
          : better                ? "better"
                                  : "worse"}}
    );
  }
  table.caption = fmt::format(
      "Each minus {}: paired seeds with Student's 95 % interval; paired bootstrap over test "
      "examples, "
      "10 000 draws, middle 95 %.",
      j["reference"].get<std::string>()
  );
  return {"Differences", figure(svg(difference_bars(j))) + sortable(table)};
}

Section slices_section(const Json& j) {
  std::set<std::string> names;
  for (const Json& row : j["rows"]) {
    if (!row.contains("test")) continue;
    for (const auto& [name, value] : row["test"].items()) names.insert(name);
  }
  SortTable table{{"mixer"}, {}};
  for (const std::string& name : names) table.head.push_back(name);
  for (const Json& row : j["rows"]) {
    if (!row.contains("test")) continue;
    std::vector<Cell> cells = {{row["mixer"].get<std::string>()}};
    for (const std::string& name : names)
      cells.push_back(row["test"].contains(name) ? score_cell(row["test"][name]) : Cell{"-"});
    table.rows.push_back(cells);
  }
  std::string body = sortable(table);
  if (const Chart chart = position_chart(j); has_points(chart)) body += figure(svg(chart));
  return {"Where it is right", body};
}

Section lengths_section(const Json& j) {
  const int64_t trained = j["task"]["T"];
  SortTable table{{"mixer", fmt::format("T = {}, as trained", trained)}, {}};
  std::set<int64_t> lengths;
  for (const Json& row : j["rows"]) {
    if (!row.contains("lengths")) continue;
    for (const auto& [T, value] : row["lengths"].items()) lengths.insert(std::stoll(T));
  }
  for (const int64_t T : lengths) table.head.push_back(fmt::format("T = {}", T));
  for (const Json& row : j["rows"]) {
    std::vector<Cell> cells = {{row["mixer"].get<std::string>()}, score_cell(row["score"])};
    for (const int64_t T : lengths) {
      const std::string key = std::to_string(T);
      const bool has = row.contains("lengths") && row["lengths"].contains(key);
      cells.push_back(has ? score_cell(row["lengths"][key]) : Cell{"-"});
    }
    table.rows.push_back(cells);
  }
  return {"Trained short, tested long", figure(svg(length_chart(j))) + sortable(table)};
}

Section cost_section(const Json& j) {
  SortTable table{
      {"mixer",
       "train tokens/s",
       "prefill tokens/s",
       "decode tokens/s",
       "at T",
       "peak memory",
       "smaller than softmax from T",
       "decodes faster from T"},
      {}};
  for (const Json& row : j["rows"]) {
    const Json last = row["speed"].empty() ? Json::object() : row["speed"].back();
    const auto speed = [&](const char* key) {
      const double x = last.contains(key) ? number(last[key]) : std::nan("");
      return std::isnan(x) ? Cell{"-"} : Cell{flops_text(x), x};
    };
    const double train = number(row["train_tokens_per_second"]);
    table.rows.push_back(
        {{row["mixer"].get<std::string>()},
         {flops_text(train), train},
         speed("prefill"),
         speed("decode"),
         last.contains("T") ? cell(number(last["T"])) : Cell{"-"},
         cell_bytes(number(row["peak_bytes"])),
         crossover_cell(row["memory_crossover"]),
         crossover_cell(row["time_crossover"])}
    );
  }
  table.caption =
      "Medians after a warm-up, one sequence, at the longest length that was measured; training as "
      "it ran, beside "
      "other runs. \"never\": at none of the measured lengths.";
  std::string body = sortable(table);
  const Chart decode = speed_chart(j, "decode", "Speed of one more token");
  if (has_points(decode)) {
    body += figure(svg(decode)) +
            figure(svg(speed_chart(j, "prefill", "Speed of reading a prompt"))) +
            figure(svg(state_chart(j)));
  }
  return {"Cost", body};
}

Section maps_section(const Json& maps) {
  std::vector<std::string> pictures;
  for (const Json& m : maps) {
    const int64_t T = m["T"];
    pictures.push_back(figure(svg(HeatMap{m["mixer"], "t", "s", T, T, m["values"]})));
  }
  return {
      "Who reads whom",
      paragraph("The first head of each trained mixer on the first test example: row t reads "
                "columns s. Blue is "
                "positive, orange negative."
      ) + side_by_side(pictures)};
}

Section runs_section(const Json& j) {
  SortTable grid{{"mixer", "learning rate", "validation", "chosen"}, {}};
  for (const Json& row : j["rows"]) {
    if (!row.contains("grid")) continue;
    for (const Json& g : row["grid"])
      grid.rows.push_back(
          {{row["mixer"].get<std::string>()},
           {fmt::format("{:g}", number(g["lr"])), number(g["lr"])},
           score_cell(g["valid"]),
           {g["lr"] == row["lr"] ? "yes " + row["lr_note"].get<std::string>() : ""}}
      );
  }
  SortTable runs{{"mixer", "lr", "seed", "validation", "test", "steps", "seconds", "folder"}, {}};
  for (const Json& run : j["runs"]) {
    const std::string failure = run["failure"], stopped = run["stopped"];
    runs.rows.push_back(
        {{run["mixer"].get<std::string>()},
         {fmt::format("{:g}", number(run["lr"])), number(run["lr"])},
         cell(number(run["seed"])),
         cell(number(run["valid"])),
         cell(number(run["test"])),
         {fmt::format("{}{}", run["steps"].get<int64_t>(), stopped.empty() ? "" : ", " + stopped),
          number(run["steps"])},
         {fmt::format("{:.1f}", number(run["seconds"])), number(run["seconds"])},
         {failure.empty() ? run["folder"].get<std::string>() : "failed: " + failure}}
    );
  }
  return {
      "Runs",
      figure(svg(curve_chart(j)), "Mean over seeds; bands: 95 % interval.") +
          folded("Learning rates, chosen on validation", sortable(grid)) +
          folded("Every run", sortable(runs)) +
          folded("Settings", code(j["options"].dump(2)) + code(j["task"].dump(2)))};
}

}  // namespace

Page compare_page(const Json& j) {
  Page page{"horner compare: " + j["options"]["task"].get<std::string>()};
  page.verdict = j["verdict"];
  for (const Json& warning : j["warnings"]) page.warnings.push_back(warning);
  page.sections = {score_section(j)};
  if (!j["differences"].empty()) page.sections.push_back(difference_section(j));
  page.sections.push_back(runs_section(j));
  page.sections.push_back(slices_section(j));
  if (has_points(length_chart(j))) page.sections.push_back(lengths_section(j));
  page.sections.push_back(cost_section(j));
  if (!j["maps"].empty()) page.sections.push_back(maps_section(j["maps"]));
  return page;
}

std::vector<NamedPicture> compare_pictures(const Json& j) {
  std::vector<NamedPicture> list = {
      {"score_state", svg(score_chart(j))}, {"curves", svg(curve_chart(j))}};
  if (!j["differences"].empty()) list.push_back({"differences", svg(difference_bars(j))});
  if (const Chart decode = speed_chart(j, "decode", "Speed of one more token"); has_points(decode))
    list.push_back({"decode", svg(decode)});
  if (const Chart lengths = length_chart(j); has_points(lengths))
    list.push_back({"lengths", svg(lengths)});
  return list;
}

}  // namespace horner
