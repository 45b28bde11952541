#include "report/compare_table.h"

#include <fmt/format.h>

#include <cmath>

#include "core/number.h"

namespace horner {
namespace {

bool is_softmax(const CompareRow& row) {
  return row.mixer.substr(0, row.mixer.find(':')) == "softmax";
}

std::string difference_text(const CompareResult& r, const std::string& mixer) {
  if (mixer == r.reference) return "reference";
  for (const Difference& d : r.differences) {
    if (d.a != mixer) continue;
    std::string text = fmt::format("{:+.3f}", d.seeds.mean);
    if (std::isfinite(d.seeds.half)) text += fmt::format(" +- {:.3f}", d.seeds.half);
    return d.shown() ? text : text + " none shown";
  }
  return "-";
}

std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '"' ? std::string("\"\"") : std::string(1, c);
  return "\"" + safe + "\"";
}

std::string value(double x) { return std::isfinite(x) ? fmt::format("{}", x) : std::string(); }

double metric_of(const Scores& scores, const std::string& metric) {
  const auto found = scores.values.find(metric);
  return found == scores.values.end() ? std::nan("") : found->second;
}

}  // namespace

double memory_crossover_of(const CompareRow& row) {
  return is_softmax(row) ? std::nan("") : row.memory_crossover;
}

double time_crossover_of(const CompareRow& row) {
  return is_softmax(row) ? std::nan("") : row.time_crossover;
}

std::string crossover_text(double T) {
  if (std::isnan(T)) return "-";
  if (T < 0) return "never";
  return T == 0 ? "always" : fmt::format("{:.0f}", T);
}

std::string flops_text(double x) {
  for (const char* unit : {"", " k", " M", " G", " T"}) {
    if (x < 1000) return fmt::format("{:.3g}{}", x, unit);
    x /= 1000;
  }
  return fmt::format("{:.3g} P", x);
}

Table compare_table(const CompareResult& r) {
  Table table{
      {"mixer",
       r.metric,
       "difference",
       "state",
       "parameters",
       "lr",
       "train tok/s",
       "decode tok/s",
       "smaller from T",
       "faster from T"},
      {}};
  for (const CompareRow& row : r.rows) {
    const double speed = row.speed.empty() ? 0 : row.speed.back().decode;
    table.rows.push_back(
        {r.options.iso == "none" ? row.mixer : row.settings,
         row.score.n == 0 ? "failed" : fmt::format("{:.3f}", row.score.mean),
         difference_text(r, row.mixer),
         short_bytes(double(row.state_bytes)),
         std::to_string(row.parameters),
         fmt::format("{:g}", row.lr),
         flops_text(row.train_speed),
         speed > 0 ? flops_text(speed) : "-",
         crossover_text(memory_crossover_of(row)),
         crossover_text(time_crossover_of(row))}
    );
  }
  for (const Baseline& b : r.baselines)
    table.rows.push_back(
        {b.name, fmt::format("{:.3f}", b.score), b.meaning, "", "", "", "", "", "", ""}
    );
  return table;
}

std::string compare_csv(const CompareResult& r) {
  std::string text =
      "mixer,settings,D,lr,seed,chosen,metric,valid,test,steps,stopped,seconds,parameters,"
      "state_bytes,flops_per_token,folder,failure\n";
  for (const CompareRun& run : r.runs) {
    for (const CompareRow& row : r.rows) {
      if (row.mixer != run.mixer) continue;
      text += fmt::format(
          "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
          quoted(run.mixer),
          quoted(row.settings),
          row.D,
          run.lr,
          run.seed,
          run.lr == row.lr ? 1 : 0,
          quoted(r.metric),
          value(metric_of(run.result.valid, r.metric)),
          value(metric_of(run.result.test, r.metric)),
          run.result.steps,
          quoted(run.result.stopped),
          value(run.result.seconds),
          row.parameters,
          row.state_bytes,
          value(row.flops_per_token),
          quoted(run.result.folder),
          quoted(run.failure)
      );
    }
  }
  return text;
}

}  // namespace horner
