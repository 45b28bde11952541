// horner bench runs: several small runs at once on one device.
#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "core/origin.h"
#include "core/spec.h"
#include "core/version.h"
#include "lab/bench/bench.h"
#include "lab/bench/runs.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace horner {
namespace {

Table table(const BenchRunsReport& report) {
  Table t{{"runs at once", "steps/s in all", "steps/s each", "started after s", "seconds"}, {}};
  for (const BenchRunsRow& r : report.rows) {
    t.rows.push_back(
        {std::to_string(r.runs),
         r.failure.empty() ? fmt::format("{:.0f}", r.steps_per_second) : r.failure,
         fmt::format("{:.0f}", r.steps_per_second / double(r.runs)),
         fmt::format("{:.1f}", r.start),
         fmt::format("{:.1f}", r.seconds)}
    );
  }
  return t;
}

std::string heading(const BenchRunsReport& report) {
  const BenchRunsOptions& o = report.options;
  return fmt::format(
      "{}: runs of {} ({}), D = {}, L = {}, B = {}, {} steps, {}.",
      report.device,
      o.task,
      fmt::join(o.mixer, ", "),
      o.D,
      o.layers,
      o.B,
      o.steps,
      o.programs ? "a program for each" : "in the way of compare"
  );
}

}  // namespace

std::function<int()> declare_bench_runs(CLI::App& app) {
  const auto options = std::make_shared<BenchRunsOptions>();
  const auto json = std::make_shared<bool>(false);
  const auto out = std::make_shared<std::string>();
  add_flags(app, *options);
  app.add_flag("--json", *json, "every measurement, as JSON");
  app.add_option("--out", *out, "folder that bench_runs_DEVICE.json and .md are written to");
  return [options, json, out] {
    if (!out->empty()) make_folder(*out);
    options->mixer = whole_specs(options->mixer);
    BenchRunsReport report;
    {
      Progress progress(options->runs.size(), "timings");
      size_t done = 0;
      report = bench_runs(*options, "/proc/self/exe", [&](const std::string& what) {
        progress.at(done++, "runs", what);
      });
    }
    if (!out->empty()) {
      const std::string path = fmt::format("{}/bench_runs_{}", *out, short_device(report.device));
      Json all = report.json();
      all["commit"] = commit();
      all["date"] = now();
      all["command"] = shell_line(command_line());
      write_file(path + ".json", all.dump(2) + "\n");
      write_file(
          path + ".md",
          fmt::format(
              "{} Commit {}, {}. `{}`\n\n{}",
              heading(report),
              commit(),
              now(),
              shell_line(command_line()),
              table(report).markdown()
          )
      );
    }
    if (*json) {
      fmt::print("{}\n", report.json().dump(2));
      return 0;
    }
    fmt::print("{}\n\n{}", fitted(heading(report)), fitted(table(report)));
    if (!out->empty())
      fmt::print("\n{}/bench_runs_{}.md holds it, .json too.\n", *out, short_device(report.device));
    return 0;
  };
}

}  // namespace horner
