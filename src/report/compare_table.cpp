#include "report/compare_table.h"

#include <fmt/format.h>

#include <cmath>

#include "core/number.h"
#include "report/compare_charts.h"

namespace horner {

std::string crossover_text(const Json& value) {
  const double T = number(value);
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

Table compare_table(const Json& j) {
  Table table{
      {"mixer",
       j["metric"],
       "difference",
       "state",
       "parameters",
       "lr",
       "train tok/s",
       "decode tok/s",
       "smaller from T",
       "faster from T"},
      {}};
  for (const Json& row : j["rows"]) {
    std::string difference = row["mixer"] == j["reference"] ? "reference" : "-";
    for (const Json& d : j["differences"]) {
      if (d["a"] != row["mixer"]) continue;
      difference = fmt::format("{:+.3f}", number(d["seeds"]["mean"]));
      if (d["seeds"]["half"].is_number())
        difference += fmt::format(" +- {:.3f}", number(d["seeds"]["half"]));
      if (!d["shown"].get<bool>()) difference += " none shown";
    }
    const Json& score = row["score"];
    const double speed =
        row["speed"].empty() ? std::nan("") : number(row["speed"].back()["decode"]);
    table.rows.push_back(
        {j["options"]["iso"] == "none" ? row["mixer"] : row["settings"],
         score["n"] == 0 ? "failed" : fmt::format("{:.3f}", number(score["mean"])),
         difference,
         short_bytes(number(row["state_bytes"])),
         fmt::format("{}", row["parameters"].get<int64_t>()),
         fmt::format("{:g}", number(row["lr"])),
         flops_text(number(row["train_tokens_per_second"])),
         std::isnan(speed) ? "-" : flops_text(speed),
         crossover_text(row["memory_crossover"]),
         crossover_text(row["time_crossover"])}
    );
  }
  for (const Json& b : j["baselines"])
    table.rows.push_back(
        {b["name"],
         fmt::format("{:.3f}", number(b["score"])),
         b["meaning"],
         "",
         "",
         "",
         "",
         "",
         "",
         ""}
    );
  return table;
}

std::string compare_csv(const Json& j) {
  const auto quoted = [](const std::string& text) {
    std::string safe;
    for (const char c : text) safe += c == '"' ? std::string("\"\"") : std::string(1, c);
    return "\"" + safe + "\"";
  };
  const auto value = [](const Json& x) { return x.is_number() ? x.dump() : std::string(); };
  std::string text =
      "mixer,settings,D,lr,seed,chosen,metric,valid,test,steps,stopped,seconds,parameters,state_"
      "bytes,"
      "flops_per_token,folder,failure\n";
  for (const Json& run : j["runs"]) {
    for (const Json& row : j["rows"]) {
      if (row["mixer"] != run["mixer"]) continue;
      text += fmt::format(
          "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
          quoted(run["mixer"]),
          quoted(row["settings"]),
          row["D"].dump(),
          run["lr"].dump(),
          run["seed"].dump(),
          run["lr"] == row["lr"] ? 1 : 0,
          quoted(j["metric"]),
          value(run["valid"]),
          value(run["test"]),
          run["steps"].dump(),
          quoted(run["stopped"]),
          value(run["seconds"]),
          row["parameters"].dump(),
          row["state_bytes"].dump(),
          value(row["flops_per_token"]),
          quoted(run["folder"]),
          quoted(run["failure"])
      );
    }
  }
  return text;
}

}  // namespace horner
