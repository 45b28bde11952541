// horner theory: the large-prompt limit of softmax, as tables, sentences, JSON and a page of pictures. Exit
// code 4 where a closed form does not hold.
#include "lab/theory/theory.h"

#include <optional>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "core/origin.h"
#include "report/progress.h"
#include "report/terminal.h"
#include "report/theory_page.h"

namespace horner {
namespace {

// One row a curve, one column a length: measured, and its ratio to the closed form.
Table table_of(const theory::Report& report, const std::string& part) {
  Table table{{"setting", "quantity"}, {}, 2};
  for (const theory::Curve& curve : report.curves) {
    if (curve.part != part) continue;
    std::vector<std::string> cells = {curve.name, curve.quantity};
    for (const theory::Point& p : curve.points) {
      if (table.rows.empty()) table.head.push_back(fmt::format("L = {}", p.L));
      std::string cell = fmt::format("{:.3g}", p.measured.value);
      if (p.predicted) cell += fmt::format(" ({:.2f})", p.measured.value / *p.predicted);
      cells.push_back(cell);
    }
    if (table.rows.empty()) table.head.push_back("exponent");
    const auto k = curve.exponent();
    cells.push_back(k ? fmt::format("{:.2f} [{:.2f}, {:.2f}]", k->value, k->low, k->high) : "-");
    table.rows.push_back(cells);
  }
  return table;
}

void print(const theory::Report& report) {
  const std::string what = fmt::format(
      "Softmax over L tokens against its large-prompt limit, d = {}, seed {}, {}. Errors are mean "
      "squares; in brackets their ratio to the closed form; exponents of L with intervals of 95 %.",
      report.options.d,
      report.options.seed,
      report.device
  );
  fmt::print("{}\n", fitted(what));
  for (const std::string part : {"concentration", "random query", "regression", "dynamics"}) {
    const Table table = table_of(report, part);
    if (!table.rows.empty()) fmt::print("\n{}\n\n{}", part, fitted(table));
  }
  fmt::print("\n");
  for (const theory::Claim& claim : report.claims) fmt::print("{}\n", fitted(claim.sentence()));
  fmt::print("\n{} {:.0f} s.\n", theory::verdict(report), report.seconds);
}

}  // namespace

std::function<int()> declare_theory(CLI::App& app) {
  const auto options = std::make_shared<theory::Options>();
  const auto json = std::make_shared<bool>(false);
  const auto out = std::make_shared<std::string>();
  add_flags(app, *options);
  app.add_flag("--json", *json, "every measurement, as JSON");
  app.add_option("--out", *out, "folder for theory.json, theory.html and the pictures");
  return [options, json, out] {
    if (!out->empty()) make_folder(*out);
    theory::Report report;
    {
      std::optional<Progress> progress;
      report = theory::study(
          *options,
          [&](size_t done, size_t total, const std::string& part, const std::string& what) {
            if (!progress) progress.emplace(total, "measurements");
            progress->at(done, part, what);
          }
      );
    }
    if (!out->empty()) {
      write_file(*out + "/theory.json", report.json().dump(2) + "\n");
      Page page = theory::page(report);
      page.origin = origin(command_line(), std::to_string(options->seed), report.device, "float64");
      page.origin.emplace_back("seconds", fmt::format("{:.0f}", report.seconds));
      write_file(*out + "/theory.html", html(page));
      for (const auto& [name, chart] : theory::charts(report))
        write_file(*out + "/" + name + ".svg", svg_file(svg(chart)));
    }
    if (*json) {
      fmt::print("{}\n", report.json().dump(2));
    } else {
      print(report);
      if (!out->empty()) fmt::print("{}/theory.html shows it.\n", *out);
    }
    return report.broken() == 0 ? 0 : 4;
  };
}

}  // namespace horner
