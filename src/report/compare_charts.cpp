#include "report/compare_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/number.h"
#include "report/palette.h"

namespace horner {
namespace {

bool is_share(const CompareResult& r) { return r.metric.find("accuracy") != std::string::npos; }

// An interval is drawn where it is known and not a point: one seed, or equal seeds, give none.
Point interval_point(const CompareResult& r, double x, const Interval& interval) {
  Point p{x, interval.mean};
  if (!std::isfinite(interval.half) || interval.half <= 0) return p;
  p.low = interval.low();
  p.high = interval.high();
  if (is_share(r)) {  // no share lies outside 0 .. 1
    p.low = std::max(0.0, p.low);
    p.high = std::min(1.0, p.high);
  }
  return p;
}

// One line a mixer, in its colour, with the points that `add` gives it.
template <class Add>
void add_rows(const CompareResult& r, Chart& chart, Add&& add) {
  const std::vector<int> colours = row_colours(r);
  for (size_t i = 0; i < r.rows.size(); ++i) {
    Line line{.name = r.rows[i].mixer, .colour = colours[i]};
    add(r.rows[i], line);
    chart.series.push_back(line);
  }
}

// A share is shown from 0 to 1; where all are below a half, from 0 to what there is.
void fit_shares(const CompareResult& r, Chart& chart) {
  if (!is_share(r)) return;
  double most = 0;
  for (const Line& s : chart.series) {
    for (const Point& p : s.points) {
      for (const double y : {p.y, p.high}) most = y > most ? y : most;
    }
  }
  chart.y.low = 0;
  if (most >= 0.5) chart.y.high = 1;
}

// Dashed lines from side to side: what needs no learning.
void add_baselines(const CompareResult& r, Chart& chart) {
  double low = INFINITY, high = 0;
  for (const Line& s : chart.series) {
    for (const Point& p : s.points) {
      if (p.x <= 0) continue;  // without a state it has no place on a log axis
      low = std::min(low, p.x);
      high = std::max(high, p.x);
    }
  }
  if (high == 0) return;
  for (const Baseline& b : r.baselines) {
    Line s{.name = b.name, .marks = false, .dashed = true, .colour = kGrey};
    s.points = {{low / 1.3, b.score}, {high * 1.3, b.score}};
    chart.series.push_back(s);
  }
}

}  // namespace

Better better_of(const CompareResult& r) { return r.smaller ? Better::lower : Better::higher; }

std::string metric_label(const CompareResult& r) {
  return r.metric + ", " + better_words(better_of(r));
}

std::vector<int> row_colours(const CompareResult& r) {
  std::vector<std::string> names;
  for (const CompareRow& row : r.rows) names.push_back(row.mixer);
  return mixer_colours(names);
}

int64_t trained_length(const CompareResult& r) {
  return r.task.is_object() && r.task.contains("T") ? r.task.at("T").get<int64_t>() : 0;
}

Chart score_chart(const CompareResult& r) {
  Chart chart{
      r.metric + " on the test against bytes of state",
      {"state of one sequence, lower is better", true, 2, true},
      {metric_label(r)}};
  add_rows(r, chart, [&](const CompareRow& row, Line& line) {
    line.line = false;
    Point p = interval_point(r, double(row.state_bytes), row.score);
    p.title = fmt::format(
        "{}: {} {:.4f}{}, {} of state",
        row.mixer,
        r.metric,
        p.y,
        std::isnan(p.low) ? "" : fmt::format(" ± {:.4f}", row.score.half),
        short_bytes(p.x)
    );
    line.points = {p};
  });
  add_baselines(r, chart);
  fit_shares(r, chart);
  return chart;
}

Chart curve_chart(const CompareResult& r) {
  Chart chart{r.metric + " on validation while training", {"step"}, {metric_label(r)}};
  add_rows(r, chart, [&](const CompareRow& row, Line& line) {
    line.band = true;
    for (const CompareRow::Point& p : row.curve)
      line.points.push_back(interval_point(r, double(p.step), p.valid));
  });
  fit_shares(r, chart);
  return chart;
}

Bars difference_bars(const CompareResult& r) {
  Bars bars{
      fmt::format("Difference to {}", r.reference),
      {fmt::format("{}; whiskers: 95 % interval over paired seeds", metric_label(r))}};
  const std::vector<int> colours = row_colours(r);
  for (size_t i = 0; i < r.rows.size(); ++i) {
    for (const Difference& d : r.differences) {
      if (d.a != r.rows[i].mixer) continue;
      Bars::Bar bar{.name = d.a, .value = d.seeds.mean, .colour = colours[i]};
      if (std::isfinite(d.seeds.half) && d.seeds.half > 0) {
        bar.low = d.seeds.low();
        bar.high = d.seeds.high();
      }
      const bool better = (d.seeds.mean < 0) == r.smaller;
      bar.text = fmt::format(
          "{}, {}",
          signed_number(d.seeds.mean, 3),
          !d.shown() ? "none shown"
          : better   ? "better"
                     : "worse"
      );
      bars.bars.push_back(bar);
    }
  }
  return bars;
}

Chart decode_chart(const CompareResult& r) {
  Chart chart{
      "Speed of one more token after T",
      {"T, tokens", true, 2},
      {"tokens per second, higher is better", true}};
  add_rows(r, chart, [&](const CompareRow& row, Line& line) {
    for (const SpeedPoint& p : row.speed) {
      if (p.decode > 0) line.points.push_back({double(p.T), p.decode, p.decode_p10, p.decode_p90});
    }
  });
  return chart;
}

Chart prefill_chart(const CompareResult& r) {
  Chart chart{
      "Speed of reading a prompt of T",
      {"T, tokens", true, 2},
      {"tokens per second, higher is better", true}};
  add_rows(r, chart, [&](const CompareRow& row, Line& line) {
    for (const SpeedPoint& p : row.speed) {
      if (p.prefill > 0) line.points.push_back({double(p.T), p.prefill});
    }
  });
  return chart;
}

Chart state_chart(const CompareResult& r) {
  Chart chart{
      "State of one sequence", {"T, tokens", true, 2}, {"bytes, lower is better", true, 2, true}};
  add_rows(r, chart, [](const CompareRow& row, Line& line) {
    for (const SpeedPoint& p : row.speed) {
      if (p.state_bytes > 0) line.points.push_back({double(p.T), double(p.state_bytes)});
    }
  });
  return chart;
}

Chart length_chart(const CompareResult& r) {
  Chart chart{
      r.metric + " against the length of the test",
      {"T, tokens of the test", true, 2},
      {metric_label(r)}};
  add_rows(r, chart, [&](const CompareRow& row, Line& line) {
    if (row.lengths.empty()) return;
    line.points.push_back(interval_point(r, double(trained_length(r)), row.score));
    for (const auto& [T, value] : row.lengths)
      line.points.push_back(interval_point(r, double(T), value));
    std::sort(line.points.begin(), line.points.end(), [](const Point& a, const Point& b) {
      return a.x < b.x;
    });
  });
  fit_shares(r, chart);
  return chart;
}

Chart position_chart(const CompareResult& r) {
  Chart chart{
      "Loss by position in the sequence",
      {.label = "share of the sequence", .low = 0, .high = 1},
      {"loss in nats, lower is better"}};
  add_rows(r, chart, [](const CompareRow& row, Line& line) {
    const double n = double(row.by_position.size());
    for (size_t i = 0; i < row.by_position.size(); ++i) {
      if (std::isfinite(row.by_position[i]))  // elsewhere nothing was asked
        line.points.push_back({(double(i) + 0.5) / n, row.by_position[i]});
    }
  });
  return chart;
}

bool has_points(const Chart& chart) {
  return std::any_of(chart.series.begin(), chart.series.end(), [](const Line& s) {
    return !s.points.empty();
  });
}

}  // namespace horner
