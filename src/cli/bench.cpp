// horner bench: what ops cost on this machine, against its limits and against others' programs.
#include "lab/bench/bench.h"

#include <optional>

#include "cli/command.h"
#include "cli/examples.h"
#include "cli/flags.h"
#include "core/check.h"
#include "core/file.h"
#include "core/number.h"
#include "core/origin.h"
#include "report/bench_charts.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace horner {
namespace {

std::string ms(const Times& t) {
  return t.median > 0 ? fmt::format("{:.3f} ({:.3f}-{:.3f})", t.median, t.p10, t.p90) : "-";
}
std::string short_ms(double x) { return x > 0 ? fmt::format("{:.3f}", x) : "-"; }
std::string ratio(double a, double b) {
  return a > 0 && b > 0 ? fmt::format("{:.2f}", a / b) : "-";
}

double best(const Times& graph, const Times& eager) {
  return graph.median > 0 ? graph.median : eager.median;
}

Table table(const BenchReport& report) {
  Table t{
      {"op",
       "variant",
       "shape",
       "program",
       "form",
       "fwd ms (p10-p90)",
       "f+b ms (p10-p90)",
       "eager fwd",
       "eager f+b",
       "floor fwd",
       "floor f+b",
       "of floor",
       "of floor",
       "x peer",
       "x peer",
       "error/allowed",
       "memory"},
      {},
      3};
  for (const BenchRow& r : report.rows) {
    const std::string form = r.calls > 1 ? fmt::format("{}, {} states", r.form, r.calls) : r.form;
    std::vector<std::string> cells = {r.op, r.variant, r.shape.name, r.program, form};
    const double forward = best(r.forward, r.eager_forward), both = best(r.both, r.eager_both);
    const bool own = r.program == "horner";
    const std::string error =
        r.allowed > 0 ? fmt::format("{} {:.2f}", r.worst, r.error / r.allowed) : "-";
    if (forward == 0) {
      cells.push_back("no time: " + r.failure);
      cells.resize(t.head.size());
      cells[15] = error;
      t.rows.push_back(cells);
      continue;
    }
    cells.insert(
        cells.end(),
        {ms(r.forward),
         r.failure.empty() ? ms(r.both) : "no time: " + r.failure,
         short_ms(r.eager_forward.median),
         short_ms(r.eager_both.median),
         short_ms(r.floor_forward),
         short_ms(r.floor_both),
         ratio(r.floor_forward, forward),
         ratio(r.floor_both, both),
         own ? ratio(r.peer_forward, forward) : "",
         own ? ratio(r.peer_both, both) : "",
         error,
         r.bytes > 0 ? short_bytes(double(r.bytes)) : "-"}
    );
    t.rows.push_back(cells);
  }
  return t;
}

std::string heading(const BenchReport& report) {
  std::string text = fmt::format(
      "{}: copy {:.0f} GB/s, matmul {:.3g} TFLOP/s{}. Times in ms: graph replays where there are "
      "any, caches cleared, one token: a state's share of a run over several; floor: bytes at the "
      "copy rate or FLOPs at the matmul rate; x peer: "
      "how many times faster than the fastest peer of the same function, or than softmax.",
      report.device,
      report.copy_rate / 1e6,
      report.matmul_rate / 1e9,
      report.clock_mhz > 0 ? fmt::format(", {} MHz", report.clock_mhz) : ""
  );
  for (const std::string& version : report.versions) text += " " + version + ".";
  return text +
         fmt::format(" Commit {}, {}. `{}`", report.commit, now(), shell_line(command_line()));
}

Json dated(const BenchReport& report) {
  Json all = report.json();
  all["date"] = now();
  all["command"] = shell_line(command_line());
  return all;
}

std::string path_of(const BenchReport& report, const std::string& folder) {
  return fmt::format("{}/bench_{}", folder, short_device(report.device));
}

// Not every op has a picture. Returns whether one was written.
bool write(const BenchReport& report, const std::string& folder) {
  const std::string path = path_of(report, folder);
  write_file(path + ".json", dated(report).dump(2) + "\n");
  write_file(path + ".md", heading(report) + "\n\n" + table(report).markdown());
  const std::string picture = bench_picture(report);
  if (!picture.empty()) write_file(path + ".svg", picture);
  return !picture.empty();
}

std::function<int()> declare_bench_ops(CLI::App& app) {
  const auto options = std::make_shared<BenchOptions>();
  const auto json = std::make_shared<bool>(false);
  const auto out = std::make_shared<std::string>();
  add_flags(app, *options);
  app.add_flag("--json", *json, "every measurement, as JSON");
  app.add_option(
      "--out", *out, "folder that bench_DEVICE.json, .md and, for some ops, .svg are written to"
  );
  return [options, json, out] {
    if (!out->empty()) make_folder(*out);
    BenchReport report;
    bool drawn = false;
    {
      std::optional<Progress> progress;
      report = bench_ops(
          *options,
          [&](size_t done, size_t total, std::string_view op, std::string_view shape) {
            if (!progress) progress.emplace(total, "timings");
            progress->at(done, std::string(op), std::string(shape));
          },
          [&](const BenchReport& so_far) {
            if (!out->empty()) drawn = write(so_far, *out);
          }
      );
    }
    if (*json) {
      fmt::print("{}\n", dated(report).dump(2));
    } else {
      fmt::print("{}\n\n{}", fitted(heading(report)), fitted(table(report)));
      if (!out->empty())
        fmt::print(
            "\n{}.md holds it, .json{} too.\n", path_of(report, *out), drawn ? " and .svg" : ""
        );
    }
    return report.failed() == 0 ? 0 : 4;
  };
}

}  // namespace

std::function<int()> declare_bench(CLI::App& app) {
  app.require_subcommand(0, 1);
  CLI::App* ops = app.add_subcommand("ops", "the ops, on their own");
  ops->allow_extras()->footer(examples_footer("bench ops"));
  const std::function<int()> run_ops = declare_bench_ops(*ops);
  CLI::App* steps = app.add_subcommand("train", "a training step, against eager PyTorch");
  steps->allow_extras()->footer(examples_footer("bench train"));
  const std::function<int()> run_steps = declare_bench_train(*steps);
  CLI::App* runs = app.add_subcommand("runs", "several small runs at once on one device");
  runs->allow_extras()->footer(examples_footer("bench runs"));
  const std::function<int()> run_runs = declare_bench_runs(*runs);
  CLI::App* texts =
      app.add_subcommand("generate", "prompts and texts of a model, against llama.cpp");
  texts->allow_extras()->footer(examples_footer("bench generate"));
  const std::function<int()> run_texts = declare_bench_generate(*texts);
  return [ops, run_ops, steps, run_steps, runs, run_runs, texts, run_texts] {
    if (ops->parsed()) return run_ops();
    if (steps->parsed()) return run_steps();
    if (runs->parsed()) return run_runs();
    if (texts->parsed()) return run_texts();
    throw UsageError("say what to time: ops, train, runs or generate");
  };
}

}  // namespace horner
