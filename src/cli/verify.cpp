// horner verify: the contract as a table a person can trust. Exit code 4 where a property fails.
#include "lab/verify.h"

#include <optional>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "report/progress.h"
#include "report/table.h"

namespace horner {
namespace {

// One row a property, one column an op; each cell the worst variant.
Table summary(const VerifyReport& report) {
  std::vector<const Op*> columns;
  for (const VerifyRow& row : report.rows) {
    if (std::find(columns.begin(), columns.end(), row.op) == columns.end())
      columns.push_back(row.op);
  }
  Table table{{"property", "at most"}, {}};
  for (const Op* op : columns) table.head.emplace_back(op->name);
  table.head.emplace_back("meaning");
  for (const Property& property : contract()) {
    std::vector<std::string> cells = {std::string(property.name), ""};
    double bound = 0;
    for (const Op* op : columns) {
      const VerifyRow* worst = nullptr;
      for (const VerifyRow& row : report.rows) {
        if (row.op != op || row.property != &property) continue;
        bound = std::max(bound, row.measure.bound);
        const bool worse =
            worst == nullptr || (worst->holds() && !row.holds()) ||
            (worst->holds() == row.holds() && row.measure.error > worst->measure.error);
        if (worse) worst = &row;
      }
      const std::string mark = worst == nullptr || worst->holds() ? "" : " FAILS";
      cells.push_back(worst == nullptr ? "-" : short_number(worst->measure.error) + mark);
    }
    cells[1] = short_number(bound);
    cells.emplace_back(property.meaning);
    table.rows.push_back(cells);
  }
  return table;
}

void print(const VerifyReport& report) {
  const VerifyOptions& o = report.options;
  fmt::print(
      "The contract on {}: B={} T={} H={} G={} K={} V={}, seed {}. Worst relative error, or "
      "violations.\n\n{}\n",
      report.device,
      o.B,
      o.T,
      o.H,
      o.G,
      o.K,
      o.V,
      o.seed,
      summary(report).text()
  );
  for (const VerifyRow& row : report.rows) {
    if (row.holds()) continue;
    fmt::print(
        "fails: {}, {}, {}: {}\n",
        row.op->name,
        row.variant,
        row.property->name,
        row.failure.empty()
            ? fmt::format("{:.3g}, at most {:.3g}", row.measure.error, row.measure.bound)
            : row.failure
    );
  }
  if (report.failed() == 0) {
    fmt::print("All {} checks hold.\n", report.rows.size());
  } else {
    fmt::print("{} of {} checks fail.\n", report.failed(), report.rows.size());
  }
}

}  // namespace

std::function<int()> declare_verify(CLI::App& app) {
  const auto options = std::make_shared<VerifyOptions>();
  const auto json = std::make_shared<bool>(false);
  const auto out = std::make_shared<std::string>();
  add_flags(app, *options);
  app.add_flag("--json", *json, "every measurement, as JSON");
  app.add_option("--out", *out, "folder that verify.json is written to");
  return [options, json, out] {
    if (!out->empty()) make_folder(*out);
    VerifyReport report;
    {
      std::optional<Progress> progress;
      report = verify(
          *options,
          [&](size_t done, size_t total, std::string_view op, std::string_view property) {
            if (!progress) progress.emplace(total);
            progress->at(done, std::string(op), std::string(property));
          }
      );
    }
    if (!out->empty()) write_file(*out + "/verify.json", report.json().dump(2) + "\n");
    if (*json) {
      fmt::print("{}\n", report.json().dump(2));
    } else {
      print(report);
    }
    return report.failed() == 0 ? 0 : 4;
  };
}

}  // namespace horner
