#include "report/compare_table.h"

#include <fmt/ranges.h>

#include <cmath>

#include "core/number.h"
#include "report/terminal.h"

namespace horner {
namespace {

std::string difference_text(const CompareResult& r, const std::string& mixer) {
  if (mixer == r.reference) return "reference";
  for (const Difference& d : r.differences) {
    if (d.a != mixer) continue;
    std::string text = signed_number(d.seeds.mean, 3);
    if (std::isfinite(d.seeds.half)) text += fmt::format(" ± {:.3f}", d.seeds.half);
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

std::string crossover_text(double T) {
  if (std::isnan(T)) return "-";
  if (T < 0) return "never";
  return T == 0 ? "always" : fmt::format("{:.0f}", T);
}

std::string crossover_text(const Crossover& c) {
  using Kind = Crossover::Kind;
  switch (c.kind) {
    case Kind::not_measured: return "-";
    case Kind::always: return "always";
    case Kind::never: return "never";
    case Kind::not_resolved: return "not resolved";
    case Kind::between: break;
  }
  return c.low > 0 ? fmt::format("{} .. {}", c.low, c.high) : fmt::format("at most {}", c.high);
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
       "smaller from T",
       "faster from T",
       "parameters",
       "lr",
       "train tok/s",
       "decode tok/s"},
      {}};
  for (const CompareRow& row : r.rows) {
    const bool ran = row.score.n > 0;
    const double speed = row.speed.empty() ? 0 : row.speed.back().decode;
    table.rows.push_back(
        {r.options.iso == "none" ? row.mixer : row.settings,
         ran ? fmt::format("{:.3f}", row.score.mean) : "failed",
         difference_text(r, row.mixer),
         ran ? short_bytes(double(row.state_bytes)) : "-",
         crossover_text(row.memory_crossover),
         crossover_text(row.time_crossover),
         ran ? std::to_string(row.parameters) : "-",
         ran ? fmt::format("{:g}", row.lr) : "-",
         ran ? flops_text(row.train_speed) : "-",
         speed > 0 ? flops_text(speed) : "-"}
    );
  }
  return table;
}

std::string baselines_text(const CompareResult& r) {
  std::vector<std::string> rules;
  for (const Baseline& b : r.baselines)
    rules.push_back(fmt::format("{} {:.3g} ({})", b.name, b.score, b.meaning));
  return rules.empty() ? "" : fmt::format("Without learning: {}.", fmt::join(rules, ", "));
}

std::string compare_text(const CompareResult& r, size_t width) {
  std::string text = compare_table(r).text(width) + "\n";
  if (const std::string rules = baselines_text(r); !rules.empty())
    text += wrapped(rules, width) + "\n\n";
  text += wrapped(r.verdict, width) + "\n";
  for (const std::string& warning : r.warnings) text += wrapped("Note: " + warning, width) + "\n";
  return text;
}

std::string compare_csv(const CompareResult& r) {
  std::string text =
      "mixer,settings,D,lr,seed,chosen,metric,valid,test,steps,stopped,seconds,parameters,"
      "state_bytes,flops_per_token,folder,failure\n";
  for (const CompareRun& run : r.runs) {
    for (const CompareRow& row : r.rows) {
      if (row.mixer != run.mixer) continue;
      const bool ran = row.score.n > 0;
      text += fmt::format(
          "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
          quoted(run.mixer),
          quoted(row.settings),
          ran ? std::to_string(row.D) : "",
          run.lr,
          run.seed,
          run.lr == row.lr ? 1 : 0,
          quoted(r.metric),
          value(metric_of(run.result.valid, r.metric)),
          value(metric_of(run.result.test, r.metric)),
          run.result.steps,
          quoted(run.result.stopped),
          value(run.result.seconds),
          ran ? std::to_string(row.parameters) : "",
          ran ? std::to_string(row.state_bytes) : "",
          ran ? value(row.flops_per_token) : "",
          quoted(run.result.folder),
          quoted(run.failure)
      );
    }
  }
  return text;
}

}  // namespace horner
