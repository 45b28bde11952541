// horner bench train: a training step against the same model in eager PyTorch.
#include "lab/bench_train.h"

#include "cli/command.h"
#include "cli/flags.h"
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

}  // namespace

std::function<int()> declare_bench_train(CLI::App& app) {
  const auto options = std::make_shared<BenchTrainOptions>();
  const auto json = std::make_shared<bool>(false);
  add_flags(app, *options);
  app.add_flag("--json", *json, "every measurement, as JSON");
  return [options, json] {
    BenchTrainReport report;
    {
      Progress progress(options->mixer.size() * options->D.size());
      size_t done = 0;
      report = bench_train(*options, [&](const std::string& what) {
        progress.at(done++, "train", what);
      });
    }
    if (*json) {
      fmt::print("{}\n", report.json().dump(2));
      return 0;
    }
    fmt::print(
        "{}: forward, backward, clipping and AdamW, B = {}, T = {}, L = {}, H = {}; medians of "
        "{} steps.\n\n{}",
        report.device,
        options->B,
        options->T,
        options->layers,
        options->heads,
        options->steps,
        table(report).text()
    );
    return 0;
  };
}

}  // namespace horner
