// horner verify: the contract as a table a person can trust. Exit code 4 where a property fails.
#include "lab/verify/verify.h"

#include <optional>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "core/number.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace horner {
namespace {

// How much of what is allowed the error is.
double share(const Measure& m) { return m.bound > 0 ? m.error / m.bound : m.error; }

const VerifyRow* worst(
    const VerifyReport& report,
    std::string_view subject,
    std::string_view form,
    std::string_view property
) {
  const VerifyRow* found = nullptr;
  for (const VerifyRow& row : report.rows) {
    if (row.subject != subject || row.form != form || row.property != property) continue;
    const bool worse =
        found == nullptr || (found->holds() && !row.holds()) ||
        (found->holds() == row.holds() && share(row.measure) > share(found->measure));
    if (worse) found = &row;
  }
  return found;
}

std::vector<std::string_view> distinct(
    const VerifyReport& report, std::string_view VerifyRow::*member
) {
  std::vector<std::string_view> list;
  for (const VerifyRow& row : report.rows) {
    if (std::find(list.begin(), list.end(), row.*member) == list.end()) list.push_back(row.*member);
  }
  return list;
}

std::string cell(const VerifyRow* row) {
  if (row == nullptr) return "-";
  return short_number(row->measure.error) + (row->holds() ? "" : " FAILS");
}

// With what is allowed, where that depends on the case.
std::string bounded_cell(const VerifyRow* row) {
  if (row == nullptr || row->measure.bound == 0) return cell(row);
  return fmt::format("{} / {}", cell(row), short_number(row->measure.bound));
}

// The properties of one op: a column for each form, each cell the worst variant.
Table summary(const VerifyReport& report, std::string_view op) {
  std::vector<std::string_view> forms;
  for (const VerifyRow& row : report.rows) {
    const bool known = std::find(forms.begin(), forms.end(), row.form) != forms.end();
    if (row.subject == op && !known) forms.push_back(row.form);
  }
  Table table{{std::string(op)}, {}};
  for (const std::string_view form : forms) table.head.emplace_back(form);
  for (const Property& property : contract()) {
    std::vector<std::string> cells = {std::string(property.name)};
    for (const std::string_view form : forms)
      cells.push_back(bounded_cell(worst(report, op, form, property.name)));
    const auto measured = [](const std::string& text) { return text != "-"; };
    if (std::any_of(cells.begin() + 1, cells.end(), measured)) table.rows.push_back(cells);
  }
  return table;
}

// One row a mixer: there are too many for columns.
Table mixer_summary(const VerifyReport& report) {
  Table table{{"mixer", "settings", "checks", "fail"}, {}};
  const std::vector<std::string_view> shown = {
      "splits anywhere", "steps", "packs", "gradients", "dsf", "initial scale", "bf16 error"};
  for (const std::string_view property : shown) table.head.emplace_back(property);
  for (const std::string_view mixer : distinct(report, &VerifyRow::subject)) {
    std::vector<std::string_view> settings;
    int64_t checks = 0, fail = 0;
    for (const VerifyRow& row : report.rows) {
      if (row.subject != mixer) continue;
      if (std::find(settings.begin(), settings.end(), row.variant) == settings.end())
        settings.push_back(row.variant);
      ++checks;
      fail += row.holds() ? 0 : 1;
    }
    std::vector<std::string> cells = {
        std::string(mixer),
        std::to_string(settings.size()),
        std::to_string(checks),
        std::to_string(fail)};
    for (const std::string_view property : shown)
      cells.push_back(cell(worst(report, mixer, {}, property)));
    table.rows.push_back(cells);
  }
  return table;
}

void print(const VerifyReport& report) {
  const VerifyOptions& o = report.options;
  if (o.mixers || !o.mixer.empty()) {
    fmt::print(
        "The contract of the mixers on {}: B={} T={} D={}, seed {}. Worst of all settings; {} "
        "properties each.\n\n{}\n",
        report.device,
        o.B,
        o.T,
        o.D,
        o.seed,
        distinct(report, &VerifyRow::property).size(),
        fitted(mixer_summary(report))
    );
  } else {
    fmt::print(
        "The contract on {}: B={} T={} H={} G={} K={} V={}, seed {}; kernels also at K = V = 64 "
        "and "
        "128.\nWorst relative error / what is allowed, or violations.\n\n",
        report.device,
        o.B,
        o.T,
        o.H,
        o.G,
        o.K,
        o.V,
        o.seed
    );
    for (const std::string_view op : distinct(report, &VerifyRow::subject))
      fmt::print("{}\n", fitted(summary(report, op)));
  }
  for (const VerifyRow& row : report.rows) {
    if (row.holds()) continue;
    fmt::print(
        "fails: {}, {}, {}: {}\n",
        row.form.empty() ? std::string(row.subject) : fmt::format("{} {}", row.subject, row.form),
        row.variant,
        row.property,
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
            if (!progress) progress.emplace(total, "checks");
            progress->at(done, std::string(op), std::string(property));
          }
      );
    }
    if (!out->empty()) write_file(*out + "/verify.json", report.json().dump(2) + "\n");
    if (*json) {
      fmt::print("{}\n", report.json().dump(2));
    } else {
      print(report);
      if (!out->empty()) fmt::print("{}/verify.json holds every measurement.\n", *out);
    }
    return report.failed() == 0 ? 0 : 4;
  };
}

}  // namespace horner
