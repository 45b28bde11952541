// horner compare: mixers side by side, as a table, JSON, CSV, pictures and a page.
#include "lab/compare/compare.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/write_report.h"
#include "core/interrupt.h"
#include "core/number.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace horner {
namespace {

std::string time_text(double seconds) {
  return std::isnan(seconds) ? "not measured" : short_time(seconds);
}

void print_plan(const CompareOptions& o, bool json) {
  std::map<std::string, Budget> budgets;
  const std::vector<CompareRun> runs = plan(o, budgets);
  const CompareTime time = time_of(o, runs);
  const bool iso = o.iso != "none";
  Json rows = Json::array();
  Table table{{"mixer", "as it would run", "D", iso ? o.iso : "", "mismatch", "one run"}, {}};
  for (const std::string& mixer : o.mixers) {
    const Budget& b = budgets[mixer];
    const double seconds = time.run.at(mixer);
    rows.push_back(
        {{"mixer", mixer},
         {"settings", b.mixer},
         {"D", b.D},
         {"budget", iso ? Json(b.cost) : Json()},
         {"budget_mismatch", iso ? Json(b.mismatch()) : Json()},
         {"seconds_per_run", number_or_null(seconds)}}
    );
    table.rows.push_back(
        {mixer,
         b.mixer,
         std::to_string(b.D),
         iso ? fmt::format("{:.0f}", b.cost) : "",
         iso ? signed_number(100 * b.mismatch(), 2) + " %" : "",
         time_text(seconds)}
    );
  }
  if (!iso) {  // two empty columns
    table.head.erase(table.head.begin() + 3, table.head.begin() + 5);
    for (auto& row : table.rows) row.erase(row.begin() + 3, row.begin() + 5);
  }
  if (json) {
    Json all = {
        {"task", o.task},
        {"iso", o.iso},
        {"rows", rows},
        {"runs", Json::array()},
        {"runs_at_once", time.at_once},
        {"seconds", number_or_null(time.all)}};
    for (const CompareRun& run : runs)
      all["runs"].push_back(
          {{"mixer", run.mixer}, {"lr", run.lr}, {"seed", run.seed}, {"steps", o.schedule.steps}}
      );
    fmt::print("{}\n", all.dump(2));
    return;
  }
  fmt::print(
      "{}\n{} runs of at most {} steps, {} at once: about {} on this machine.\n",
      fitted(table),
      runs.size(),
      o.schedule.steps,
      time.at_once,
      time_text(time.all)
  );
}

}  // namespace

std::function<int()> declare_compare(CLI::App& app) {
  const auto options = std::make_shared<CompareOptions>();
  const auto mixers = std::make_shared<std::vector<std::string>>();
  const auto json = std::make_shared<bool>(false), dry = std::make_shared<bool>(false);
  app.add_option("mixers", *mixers, "mixer or mixer:settings, as in taylor:order=4,norm=l2")
      ->default_str(CLI::detail::join(options->mixers, " "));
  add_config(app, *options);
  add_flags(app, *options);
  app.add_flag("--dry-run", *dry, "print what would run, with the solved budgets, and run nothing");
  app.add_flag("--json", *json, "everything, as JSON");
  return [=] {
    if (!mixers->empty()) options->mixers = *mixers;
    if (*dry) {
      print_plan(*options, *json);
      return 0;
    }
    const CatchInterrupt catch_interrupt;
    CompareResult result;
    {
      std::optional<Progress> progress;
      int64_t total = -1;
      result = compare(*options, "/proc/self/exe", [&](const RunsTick& tick) {
        const bool timing = tick.what.starts_with("speed of");
        if (tick.steps != total) progress.emplace(size_t(tick.steps), timing ? "timings" : "steps");
        total = tick.steps;
        progress->at(
            size_t(std::min(tick.steps_done, tick.steps)),
            timing ? "speed" : fmt::format("{} of {} runs", tick.runs_done, tick.runs),
            tick.what
        );
      });
    }
    set_origin(result);
    const std::string earlier = write_compare(result, options->out);
    if (*json) {
      fmt::print("{}\n", result.json().dump(2));
    } else {
      fmt::print("{}", compare_text(result, terminal_width(STDOUT_FILENO)));
      if (result.runs_read > 0)
        fmt::print(
            "\n{} of {} runs had finished before and were only read.\n",
            result.runs_read,
            result.runs.size()
        );
      fmt::print(
          "\n{0}/report.html shows it; {0}/compare.json holds everything.\n{1}",
          options->out,
          earlier.empty()
              ? ""
              : "The report of another comparison that stood there is in " + earlier + ".\n"
      );
    }
    const bool all = std::all_of(result.rows.begin(), result.rows.end(), [](const CompareRow& row) {
      return row.score.n > 0;
    });
    return all ? 0 : 1;  // 1: a mixer without a finished run
  };
}

}  // namespace horner
