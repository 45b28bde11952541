// horner bench train: a training step against the same model in PyTorch.
#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "core/number.h"
#include "core/origin.h"
#include "core/spec.h"
#include "core/version.h"
#include "lab/bench/bench.h"
#include "lab/bench/train.h"
#include "report/bench_profile.h"
#include "report/progress.h"
#include "report/terminal.h"
#include "report/train.h"

namespace horner {
namespace {

Table table(const BenchTrainReport& report) {
  Table t{
      {"mixer",
       "D",
       "L",
       "parameters",
       "step ms",
       "as a graph",
       "tok/s",
       "memory",
       "eager PyTorch ms",
       "its memory",
       "times as fast"},
      {}};
  if (report.options.compile)
    t.head.insert(t.head.end(), {"compiled PyTorch ms", "its memory", "times as fast"});
  const auto bytes = [](double x) { return x > 0 ? short_bytes(x) : "-"; };
  for (const BenchTrainRow& r : report.rows) {
    const bool peer = r.peer_milliseconds > 0;
    const double step = r.graph_milliseconds > 0 ? r.graph_milliseconds : r.milliseconds;
    t.rows.push_back(
        {r.mixer,
         std::to_string(r.D),
         std::to_string(r.layers),
         short_count(double(r.parameters)),
         r.failure.empty() ? fmt::format("{:.2f}", r.milliseconds) : r.failure,
         r.graph_milliseconds > 0  ? fmt::format("{:.2f}", r.graph_milliseconds)
         : r.graph_failure.empty() ? "-"
                                   : r.graph_failure.substr(0, 60),
         short_count(r.tokens_per_second),
         bytes(r.memory),
         peer ? fmt::format("{:.2f}", r.peer_milliseconds) : "-",
         bytes(r.peer_memory),
         peer ? fmt::format("{:.2f}", r.peer_milliseconds / step) : "-"}
    );
    if (!report.options.compile) continue;
    const bool compiled = r.compiled_milliseconds > 0;
    for (const std::string& cell :
         {compiled ? fmt::format("{:.2f}", r.compiled_milliseconds) : "-",
          bytes(r.compiled_memory),
          compiled ? fmt::format("{:.2f}", r.compiled_milliseconds / step) : "-"})
      t.rows.back().push_back(cell);
  }
  return t;
}

std::string heading(const BenchTrainReport& report) {
  const BenchTrainOptions& o = report.options;
  return fmt::format(
      "{}: forward, backward, clipping and AdamW of a language model, B = {}, T = {}{}, H = {}, {} "
      "tokens; medians of {} steps.",
      report.device,
      o.B,
      o.T,
      o.equal ? ", layers by the size of the first" : fmt::format(", L = {}", o.layers),
      o.heads,
      o.vocabulary,
      o.steps
  );
}

constexpr size_t kKernels = 30;
constexpr const char* kPartsHeading =
    "Time of each part, ms of a step; idle: the step less all kernels. Then the longest kernels.";

std::string path_of(const BenchTrainReport& report, const std::string& folder) {
  return fmt::format(
      "{}/bench_train_{}_T{}", folder, short_device(report.device), report.options.T
  );
}

void write(const BenchTrainReport& report, const std::string& folder) {
  const std::string path = path_of(report, folder);
  Json all = report.json();
  all["commit"] = commit();
  all["date"] = now();
  all["command"] = shell_line(command_line());
  write_file(path + ".json", all.dump(2) + "\n");
  std::string text = fmt::format(
      "{} Commit {}, {}. `{}`\n\n{}",
      heading(report),
      commit(),
      now(),
      shell_line(command_line()),
      table(report).markdown()
  );
  if (report.options.profile) {
    text += fmt::format(
        "\n{}\n\n{}\n{}",
        kPartsHeading,
        parts_table(report).markdown(),
        kernels_table(report, kKernels).markdown()
    );
  }
  write_file(path + ".md", text);
  const std::string picture = parts_picture(report);
  if (!picture.empty()) write_file(path + ".svg", picture);
}

}  // namespace

std::function<int()> declare_bench_train(CLI::App& app) {
  const auto options = std::make_shared<BenchTrainOptions>();
  const auto json = std::make_shared<bool>(false);
  const auto out = std::make_shared<std::string>();
  add_flags(app, *options);
  app.add_flag("--json", *json, "every measurement, as JSON");
  app.add_option(
      "--out", *out, "folder that bench_train_DEVICE_T.json, .md and .svg are written to"
  );
  return [options, json, out] {
    if (!out->empty()) make_folder(*out);
    options->mixer = whole_specs(options->mixer);
    BenchTrainReport report;
    {
      Progress progress(options->mixer.size() * options->D.size(), "models");
      size_t done = 0;
      report = bench_train(*options, [&](const std::string& what, const auto& so_far) {
        progress.at(done++, "train", what);
        if (!out->empty()) write(so_far, *out);
      });
    }
    if (!out->empty()) write(report, *out);
    if (*json) {
      fmt::print("{}\n", report.json().dump(2));
      return 0;
    }
    fmt::print("{}\n\n{}", fitted(heading(report)), fitted(table(report)));
    if (options->profile) {
      fmt::print("\n{}\n\n{}\n", fitted(kPartsHeading), fitted(parts_table(report)));
      fmt::print("{}", fitted(kernels_table(report, kKernels)));
    }
    if (!out->empty()) fmt::print("\n{}.md holds it, .json too.\n", path_of(report, *out));
    return 0;
  };
}

}  // namespace horner
