// horner compare: mixers side by side, as a table, JSON, CSV, pictures and a page.
#include "lab/compare/compare.h"

#include <chrono>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/write_report.h"
#include "core/interrupt.h"
#include "report/progress.h"

namespace horner {
namespace {

void print_plan(const CompareOptions& o) {
  std::map<std::string, Budget> budgets;
  const std::vector<CompareRun> runs = plan(o, budgets);
  Table table{{"mixer", "as it would run", "D", o.iso == "none" ? "" : o.iso, "mismatch"}, {}};
  for (const std::string& mixer : o.mixers) {
    const Budget& b = budgets[mixer];
    table.rows.push_back(
        {mixer,
         b.mixer,
         std::to_string(b.D),
         o.iso == "none" ? "" : fmt::format("{:.0f}", b.cost),
         o.iso == "none" ? "" : fmt::format("{:+.2f} %", 100 * b.mismatch())}
    );
  }
  fmt::print("{}\n{} runs of {} steps.\n", table.text(), runs.size(), o.schedule.steps);
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
      print_plan(*options);
      return 0;
    }
    const CatchInterrupt catch_interrupt;
    CompareResult result;
    {
      std::optional<Progress> progress;
      int64_t total = -1;
      result = compare(*options, "/proc/self/exe", [&](const RunsTick& tick) {
        if (tick.steps != total) progress.emplace(size_t(tick.steps));
        total = tick.steps;
        progress->at(
            size_t(std::min(tick.steps_done, tick.steps)),
            fmt::format("{} of {} runs", tick.runs_done, tick.runs),
            tick.what
        );
      });
    }
    set_origin(result);
    write_compare(result, options->out);
    if (*json) {
      fmt::print("{}\n", result.json().dump(2));
    } else {
      fmt::print("{}\n{}\n", compare_table(result).text(), result.verdict);
      for (const std::string& warning : result.warnings) fmt::print("Note: {}\n", warning);
      fmt::print(
          "\n{}/report.html shows it; {}\n",
          options->out,
          options->out + "/compare.json holds everything."
      );
    }
    return result.reference.empty() ? 1 : 0;  // no run finished
  };
}

}  // namespace horner
