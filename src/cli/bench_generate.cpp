// horner bench generate: prompts and texts of a model; on a CPU beside llama.cpp, on a GPU of many streams.
#include <filesystem>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/check.h"
#include "core/file.h"
#include "core/number.h"
#include "core/origin.h"
#include "core/version.h"
#include "lab/bench/bench.h"
#include "lab/bench/generate.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace horner {
namespace {

std::string rate(double x) { return x > 0 ? fmt::format("{:.0f}", x) : "-"; }
std::string times(double a, double b) { return b > 0 ? fmt::format("{:.2f}", a / b) : "-"; }

Table speeds(const BenchGenerateReport& report) {
  Table t{
      {"context",
       "prompt tok/s",
       "text tok/s",
       "MB a token",
       "state",
       "GB/s",
       "of read rate",
       "llama.cpp prompt",
       "llama.cpp text",
       "x prompt",
       "x text"},
      {}};
  for (const GenerateRow& r : report.rows) {
    t.rows.push_back(
        {std::to_string(r.context),
         rate(r.prompt),
         rate(r.text),
         fmt::format("{:.1f}", r.bytes / 1e6),
         short_bytes(r.state_bytes),
         fmt::format("{:.1f}", r.bytes * r.text / 1e9),
         times(r.bytes * r.text, report.read_rate),
         rate(r.peer_prompt),
         rate(r.peer_text),
         times(r.prompt, r.peer_prompt),
         times(r.text, r.peer_text)}
    );
  }
  return t;
}

Table stream_speeds(const BenchGenerateReport& report) {
  Table t{
      {"streams",
       "context",
       "same bits",
       "prompt tok/s",
       "text tok/s",
       "ms a step",
       "MB a step",
       "GB/s",
       report.device.starts_with("CPU") ? "of read rate" : "of copy rate",
       "state"},
      {}};
  for (const StreamsRow& r : report.streams) {
    const double steps = r.text / double(r.streams);  // a second
    t.rows.push_back(
        {std::to_string(r.streams),
         std::to_string(r.context),
         r.invariant ? "yes" : "-",
         rate(r.prompt),
         rate(r.text),
         fmt::format("{:.3f}", 1e3 / steps),
         fmt::format("{:.1f}", r.bytes / 1e6),
         fmt::format("{:.1f}", r.bytes * steps / 1e9),
         times(r.bytes * steps, report.read_rate),
         short_bytes(r.state_bytes)}
    );
  }
  return t;
}

Table fidelities(const BenchGenerateReport& report) {
  Table t{{"program", "MB of weights", "KL to fp32", "same top-1", "nats (fp32)", "memory"}, {}};
  const auto add = [&](const std::string& name, double bytes, const Fidelity& f, double memory) {
    t.rows.push_back(
        {name,
         bytes > 0 ? fmt::format("{:.1f}", bytes / 1e6) : "-",
         fmt::format("{:.5f}", f.kl),
         fmt::format("{:.3f}", f.same_top1),
         fmt::format("{:.4f} ({:.4f})", f.nats, report.fp32_nats),
         memory > 0 ? short_bytes(memory) : "-"}
    );
  };
  add("horner", report.weight_bytes, report.own, report.memory);
  if (!report.options.peer.empty()) add("llama.cpp", 0, report.peer, report.peer_memory);
  for (const auto& one : report.beside) add("horner, " + one.weights, one.bytes, one.fidelity, 0);
  return t;
}

std::string heading_of_streams(const BenchGenerateReport& report) {
  const BenchGenerateOptions& o = report.options;
  return fmt::format(
      "{} on {}: {}, {:.1f} MB of weights a step; loaded in {:.2f} s; {} {:.1f} GB/s. Text: tokens "
      "of all streams, by the "
      "median of {} steps after each prompt; the fastest of {} rounds. KL over {} tokens. Commit "
      "{}, {}.",
      std::filesystem::path(o.model).filename().string(),
      report.device,
      report.decoder,
      report.weight_bytes / 1e6,
      report.load_seconds,
      report.device.starts_with("CPU") ? "all threads read" : "a copy moves",
      report.read_rate / 1e9,
      o.steps,
      o.rounds,
      o.kl_tokens,
      commit(),
      now()
  );
}

std::string heading(const BenchGenerateReport& report) {
  const BenchGenerateOptions& o = report.options;
  if (!report.streams.empty()) return heading_of_streams(report);
  return fmt::format(
      "{} on {}: {}, {:.1f} MB of weights a token; loaded in {:.2f} s; all threads "
      "read "
      "{:.1f} GB/s. Text: median of {} tokens after each prompt; the fastest of {} rounds{}. KL "
      "over "
      "{} tokens. Commit {}, {}.",
      std::filesystem::path(o.model).filename().string(),
      report.device,
      report.decoder,
      report.weight_bytes / 1e6,
      report.load_seconds,
      report.read_rate / 1e9,
      o.steps,
      o.rounds,
      o.peer.empty()
          ? ""
          : fmt::format(
                ", in turns with {} (flash attention on, the faster choice)", report.peer_version
            ),
      o.kl_tokens,
      commit(),
      now()
  );
}

Table table_of(const BenchGenerateReport& report) {
  return report.streams.empty() ? speeds(report) : stream_speeds(report);
}

void write(const BenchGenerateReport& report, const std::string& folder) {
  const bool several = !report.streams.empty() && report.device.starts_with("CPU");
  const std::string path = fmt::format(
      "{}/bench_generate_{}{}", folder, short_device(report.device), several ? "_streams" : ""
  );
  Json all = report.json();
  all["commit"] = commit();
  all["date"] = now();
  write_file(path + ".json", all.dump(2) + "\n");
  write_file(
      path + ".md",
      fmt::format(
          "{}\n\n{}\n{}",
          heading(report),
          table_of(report).markdown(),
          fidelities(report).markdown()
      )
  );
}

}  // namespace

std::function<int()> declare_bench_generate(CLI::App& app) {
  const auto options = std::make_shared<BenchGenerateOptions>();
  const auto json = std::make_shared<bool>(false);
  const auto out = std::make_shared<std::string>();
  app.add_option("MODEL", options->model, "a GGUF file, a model folder, or a name of `get`")
      ->required();
  add_flags(app, *options);
  app.add_flag("--json", *json, "every measurement, as JSON");
  app.add_option("--out", *out, "folder that bench_generate_DEVICE.json and .md are written to");
  return [options, json, out] {
    if (!out->empty()) make_folder(*out);
    BenchGenerateReport report;
    {
      const size_t total = size_t(options->rounds) * (options->context.size() + 1) + 3;
      Progress progress(total, "timings");
      size_t done = 0;
      report = bench_generate(*options, [&](const std::string& what) {
        progress.at(std::min(done++, total), "generate", what);
      });
    }
    if (!out->empty()) write(report, *out);
    if (*json) {
      fmt::print("{}\n", report.json().dump(2));
    } else {
      fmt::print(
          "{}\n\n{}\n{}",
          fitted(heading(report)),
          fitted(table_of(report)),
          fitted(fidelities(report))
      );
    }
    return report.exact() ? 0 : 4;
  };
}

}  // namespace horner
