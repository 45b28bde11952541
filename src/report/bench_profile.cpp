#include "report/bench_profile.h"

#include <algorithm>

#include "report/svg.h"

namespace horner {
namespace {

std::string row_name(const BenchTrainRow& row) { return fmt::format("{} D={}", row.mixer, row.D); }

// The parts of all rows, in the order of the first row that has them.
std::vector<std::string> part_names(const BenchTrainReport& report) {
  std::vector<std::string> names;
  for (const BenchTrainRow& row : report.rows) {
    for (const PartTime& p : row.profile.parts) {
      if (std::find(names.begin(), names.end(), p.part) == names.end()) names.push_back(p.part);
    }
  }
  return names;
}

}  // namespace

Table parts_table(const BenchTrainReport& report) {
  const std::vector<std::string> names = part_names(report);
  Table t{{"mixer", "D", "step ms"}, {}};
  t.head.insert(t.head.end(), names.begin(), names.end());
  for (const BenchTrainRow& row : report.rows) {
    if (row.profile.parts.empty()) continue;
    std::vector<std::string> cells = {
        row.mixer, std::to_string(row.D), fmt::format("{:.2f}", row.milliseconds)};
    for (const std::string& name : names) {
      double ms = 0;
      for (const PartTime& p : row.profile.parts) ms += p.part == name ? p.milliseconds : 0;
      cells.push_back(fmt::format("{:.2f}", ms));
    }
    t.rows.push_back(cells);
  }
  return t;
}

Table kernels_table(const BenchTrainReport& report, size_t count) {
  Table t{{"mixer", "part", "calls", "ms", "share", "kernel"}, {}};
  for (const BenchTrainRow& row : report.rows) {
    const double busy = row.profile.busy();
    for (size_t i = 0; i < std::min(count, row.profile.kernels.size()); ++i) {
      const KernelTime& k = row.profile.kernels[i];
      t.rows.push_back(
          {row_name(row),
           k.part,
           std::to_string(k.calls),
           fmt::format("{:.3f}", k.milliseconds),
           fmt::format("{:.1f} %", 100 * k.milliseconds / busy),
           k.name}
      );
    }
  }
  return t;
}

std::string parts_picture(const BenchTrainReport& report) {
  std::vector<std::string> pictures;
  for (const BenchTrainRow& row : report.rows) {
    if (row.profile.parts.empty()) continue;
    Bars bars{
        .title = row_name(row), .value = {.label = "ms of a step, lower is better", .low = 0}};
    for (const PartTime& p : row.profile.parts) {
      const double share = p.milliseconds / std::max(row.milliseconds, 1e-9);
      bars.bars.push_back(
          {.name = p.part,
           .value = p.milliseconds,
           .text = fmt::format("{:.2f} ms, {:.0f} %", p.milliseconds, 100 * share)}
      );
    }
    pictures.push_back(svg(bars));
  }
  return pictures.empty() ? "" : svg_file(stacked("A training step by part", pictures));
}

}  // namespace horner
