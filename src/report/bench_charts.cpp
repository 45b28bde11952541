#include "report/bench_charts.h"

#include <algorithm>
#include <set>

#include "report/drawing.h"

namespace horner {
namespace {

double both_ms(const BenchRow& row) {
  return row.both.median > 0 ? row.both.median : row.eager_both.median;
}

std::string line_name(const BenchRow& row) {
  const Dims& d = row.shape.dims;
  const std::string by =
      row.program == "horner" ? "" : fmt::format("{} {}: ", row.program, row.form);
  return fmt::format("{}{}, {}/{}", by, row.variant, d.K, d.V);
}

Line& line_named(std::vector<Line>& lines, const BenchRow& row) {
  const std::string name = line_name(row);
  for (Line& line : lines) {
    if (line.name == name) return line;
  }
  lines.push_back({.name = name, .dashed = row.program != "horner"});
  return lines.back();
}

struct Pair {
  Chart time, share;
};

Pair charts(const BenchReport& report, const std::string& op) {
  const Axis T{.label = "T, tokens", .log = true, .base = 2};
  Pair p{
      {.title = op + ": time",
       .x = T,
       .y = {.label = "ns per token and head, forward and backward: lower is better", .log = true},
       .legend = true,
       .labels = false},
      {.title = op + ": share of the floor",
       .x = T,
       .y = {.label = "floor / time, forward and backward: higher is better", .low = 0, .high = 1},
       .legend = true,
       .labels = false}};
  for (const BenchRow& row : report.rows) {
    const Dims& d = row.shape.dims;
    if (row.op != op || both_ms(row) == 0) continue;
    if (row.shape.name == "E1") continue;  // what a call costs, not a token
    const double x = double(d.T), ns = 1e6 * both_ms(row) / double(d.B * d.T * d.H);
    const std::string title = fmt::format("{} at {}: ", line_name(row), row.shape.name);
    line_named(p.time.series, row)
        .points.push_back({.x = x, .y = ns, .title = fmt::format("{}{:.3g} ns", title, ns)});
    if (row.floor_both == 0) continue;
    const double share = row.floor_both / both_ms(row);
    line_named(p.share.series, row)
        .points.push_back({.x = x, .y = share, .title = fmt::format("{}{:.2f}", title, share)});
  }
  for (Chart* chart : {&p.time, &p.share}) {
    for (Line& line : chart->series) {
      std::sort(line.points.begin(), line.points.end(), [](const Point& a, const Point& b) {
        return a.x < b.x;
      });
    }
  }
  return p;
}

double height_of(const std::string& picture) {
  const size_t at = picture.find("height=\"") + 8;
  return std::stod(picture.substr(at, picture.find('"', at) - at));
}

// A picture within another: its place goes into its first tag.
std::string placed(const std::string& picture, double x, double y) {
  const size_t at = picture.find("class=");
  return picture.substr(0, at) + fmt::format(R"(x="{:g}" y="{:g}" )", x, y) + picture.substr(at);
}

}  // namespace

std::string bench_picture(const BenchReport& report) {
  std::vector<std::string> names;
  for (const BenchRow& row : report.rows) {
    if (std::find(names.begin(), names.end(), row.op) == names.end()) names.push_back(row.op);
  }
  std::string body;
  double y = 0;
  for (const std::string& op : names) {
    std::set<int64_t> lengths;
    for (const BenchRow& row : report.rows) {
      if (row.op == op && row.program == "horner" && both_ms(row) > 0)
        lengths.insert(row.shape.dims.T);
    }
    if (lengths.size() < 2) continue;
    const Pair p = charts(report, op);
    const std::string left = svg(p.time), right = svg(p.share);
    body += placed(left, 0, y) + placed(right, kWide + 24, y);
    y += std::max(height_of(left), height_of(right)) + 24;
  }
  if (body.empty()) return "";
  const std::string title = "horner bench ops on " + report.device;
  return svg_file(open_picture(title, y, 2 * kWide + 24, "wide") + body + "</svg>");
}

}  // namespace horner
