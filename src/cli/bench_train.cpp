// horner bench train: a training step against the same model in eager PyTorch.
#include "cli/command.h"
#include "cli/flags.h"
#include "core/commit.h"
#include "core/file.h"
#include "core/number.h"
#include "core/origin.h"
#include "core/spec.h"
#include "lab/bench/bench.h"
#include "lab/bench/train.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/train.h"

namespace horner {
namespace {

Table table(const BenchTrainReport& report) {
  Table t{
      {"mixer",
       "D",
       "parameters",
       "step ms",
       "tok/s",
       "memory",
       "eager PyTorch ms",
       "its memory",
       "times as fast"},
      {}};
  const auto bytes = [](double x) { return x > 0 ? short_bytes(x) : "-"; };
  for (const BenchTrainRow& r : report.rows) {
    const bool peer = r.peer_milliseconds > 0;
    t.rows.push_back(
        {r.mixer,
         std::to_string(r.D),
         short_count(double(r.parameters)),
         r.failure.empty() ? fmt::format("{:.2f}", r.milliseconds) : r.failure,
         short_count(r.tokens_per_second),
         bytes(r.memory),
         peer ? fmt::format("{:.2f}", r.peer_milliseconds) : "-",
         bytes(r.peer_memory),
         peer ? fmt::format("{:.2f}", r.peer_milliseconds / r.milliseconds) : "-"}
    );
  }
  return t;
}

std::string heading(const BenchTrainReport& report) {
  const BenchTrainOptions& o = report.options;
  return fmt::format(
      "{}: forward, backward, clipping and AdamW of a language model, B = {}, T = {}, L = {}, H = "
      "{}, {} tokens; medians "
      "of {} steps.",
      report.device,
      o.B,
      o.T,
      o.layers,
      o.heads,
      o.vocabulary,
      o.steps
  );
}

void write(const BenchTrainReport& report, const std::string& folder) {
  const std::string path =
      fmt::format("{}/bench_train_{}_T{}", folder, short_device(report.device), report.options.T);
  Json all = report.json();
  all["commit"] = commit();
  all["date"] = now();
  write_file(path + ".json", all.dump(2) + "\n");
  write_file(
      path + ".md",
      fmt::format(
          "{} Commit {}, {}.\n\n{}", heading(report), commit(), now(), table(report).markdown()
      )
  );
}

}  // namespace

std::function<int()> declare_bench_train(CLI::App& app) {
  const auto options = std::make_shared<BenchTrainOptions>();
  const auto json = std::make_shared<bool>(false);
  const auto out = std::make_shared<std::string>();
  add_flags(app, *options);
  app.add_flag("--json", *json, "every measurement, as JSON");
  app.add_option("--out", *out, "folder that bench_train_DEVICE_T.json and .md are written to");
  return [options, json, out] {
    if (!out->empty()) make_folder(*out);
    options->mixer = whole_specs(options->mixer);
    BenchTrainReport report;
    {
      Progress progress(options->mixer.size() * options->D.size());
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
    fmt::print("{}\n\n{}", heading(report), table(report).text());
    return 0;
  };
}

}  // namespace horner
