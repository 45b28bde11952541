// The pictures of a comparison.
#include "report/compare_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/number.h"

namespace horner {

double number(const Json& json) { return json.is_number() ? json.get<double>() : std::nan(""); }

Point interval_point(double x, const Json& interval) {
  Point p{x, number(interval["mean"])};
  const double half = number(interval["half"]);
  if (half > 0) {
    p.low = p.y - half;
    p.high = p.y + half;
  }
  return p;
}

Chart score_chart(const Json& j) {
  const std::string metric = j["metric"];
  Chart chart{
      metric + " on the test against bytes of state",
      {"state of one sequence", true, 2, true},
      {metric}};
  const bool share = metric.find("accuracy") != std::string::npos;
  if (share) chart.y.low = 0;
  if (share) chart.y.high = 1;
  int colour = 0;
  for (const Json& row : j["rows"]) {
    Line s{row["mixer"]};
    s.line = false;
    s.colour = colour++;
    Point p = interval_point(number(row["state_bytes"]), row["score"]);
    p.title = fmt::format(
        "{}: {} {:.4f}{}, {} of state",
        s.name,
        metric,
        p.y,
        std::isnan(p.low) ? "" : fmt::format(" ± {:.4f}", p.high - p.y),
        short_bytes(p.x)
    );
    if (share && !std::isnan(p.low)) {  // no share lies outside 0 .. 1
      p.low = std::max(0.0, p.low);
      p.high = std::min(1.0, p.high);
    }
    s.points = {p};
    chart.series.push_back(s);
  }
  if (chart.series.empty()) return chart;
  double low = INFINITY, high = 0;
  for (const Line& s : chart.series) {
    low = std::min(low, s.points[0].x);
    high = std::max(high, s.points[0].x);
  }
  for (const Json& b : j["baselines"]) {
    Line s{b["name"]};
    s.dashed = true;
    s.marks = false;
    s.colour = 7;
    s.points = {{low / 1.3, number(b["score"])}, {high * 1.3, number(b["score"])}};
    chart.series.push_back(s);
  }
  return chart;
}

Chart curve_chart(const Json& j) {
  const std::string metric = j["metric"];
  Chart chart{metric + " on validation while training", {"step"}, {metric}};
  for (const Json& row : j["rows"]) {
    Line s{row["mixer"]};
    s.band = true;
    for (const Json& p : row["curve"])
      s.points.push_back(interval_point(number(p["step"]), p["valid"]));
    chart.series.push_back(s);
  }
  if (metric.find("accuracy") != std::string::npos) {
    chart.y.low = 0;
    chart.y.high = 1;
    for (Line& s : chart.series) {
      for (Point& p : s.points) {
        p.low = std::max(0.0, p.low);
        p.high = std::min(1.0, p.high);
      }
    }
  }
  return chart;
}

Bars difference_bars(const Json& j) {
  Bars bars{
      fmt::format("Difference to {}", j["reference"].get<std::string>()),
      {fmt::format(
          "{}, with the 95 % interval over paired seeds", j["metric"].get<std::string>()
      )}};
  int colour = 0;
  for (const Json& row : j["rows"]) {
    for (const Json& d : j["differences"]) {
      if (d["a"] != row["mixer"]) continue;
      const Point p = interval_point(0, d["seeds"]);
      Bars::Bar bar{row["mixer"], p.y, p.low, p.high};
      bar.text = fmt::format("{:+.3f}{}", p.y, d["shown"].get<bool>() ? "" : ", none shown");
      bar.colour = colour;
      bars.bars.push_back(bar);
    }
    ++colour;
  }
  return bars;
}

Chart speed_chart(const Json& j, const std::string& key, const std::string& title) {
  Chart chart{title, {"T, tokens", true, 2}, {"tokens per second", true}};
  for (const Json& row : j["rows"]) {
    Line s{row["mixer"]};
    for (const Json& p : row["speed"]) {
      if (number(p[key]) > 0) s.points.push_back({number(p["T"]), number(p[key])});
    }
    chart.series.push_back(s);
  }
  return chart;
}

Chart state_chart(const Json& j) {
  Chart chart{"State of one sequence", {"T, tokens", true, 2}, {"bytes", true, 2, true}};
  for (const Json& row : j["rows"]) {
    Line s{row["mixer"]};
    for (const Json& p : row["speed"]) {
      if (number(p["state_bytes"]) > 0)
        s.points.push_back({number(p["T"]), number(p["state_bytes"])});
    }
    chart.series.push_back(s);
  }
  return chart;
}

Chart length_chart(const Json& j) {
  const std::string metric = j["metric"];
  Chart chart{"Trained short, tested long", {"T, tokens of the test", true, 2}, {metric}};
  for (const Json& row : j["rows"]) {
    Line s{row["mixer"]};
    if (row.contains("lengths")) {
      const double trained = number(j["task"]["T"]);
      s.points.push_back(interval_point(trained, row["score"]));
      for (const auto& [T, value] : row["lengths"].items())
        s.points.push_back(interval_point(std::stod(T), value));
      std::sort(s.points.begin(), s.points.end(), [](const Point& a, const Point& b) {
        return a.x < b.x;
      });
    }
    chart.series.push_back(s);
  }
  return chart;
}

Chart position_chart(const Json& j) {
  Chart chart{"Loss by position in the sequence", {"share of the sequence"}, {"loss, nats"}};
  for (const Json& row : j["rows"]) {
    Line s{row["mixer"]};
    const Json& losses = row["loss_by_position"];
    for (size_t i = 0; i < losses.size(); ++i)
      s.points.push_back({(double(i) + 0.5) / double(losses.size()), number(losses[i])});
    chart.series.push_back(s);
  }
  return chart;
}

bool has_points(const Chart& chart) {
  for (const Line& s : chart.series) {
    if (!s.points.empty()) return true;
  }
  return false;
}

}  // namespace horner
