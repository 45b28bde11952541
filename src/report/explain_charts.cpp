#include "report/explain_charts.h"

#include <fmt/format.h>

#include "core/number.h"
#include "report/palette.h"

namespace horner {

Chart state_chart(const Explanation& e) {
  Chart chart{
      "State of one sequence",
      {"T, tokens seen", true, 2},
      {"bytes in fp32, lower is better", true, 2, true}};
  Line state{.name = e.mixer, .colour = mixer_colour(e.mixer)};
  Line cache{.name = "key/value cache", .dashed = true, .colour = kGrey};
  for (const Explanation::Size& s : e.sizes) {
    const std::string at = fmt::format("at T = {}: ", s.T);
    state.points.push_back({double(s.T), double(s.bytes)});
    state.points.back().title = e.mixer + " " + at + short_bytes(double(s.bytes));
    cache.points.push_back({double(s.T), double(s.cache)});
    cache.points.back().title = "key/value cache " + at + short_bytes(double(s.cache));
  }
  chart.series = {state, cache};
  return chart;
}

Chart spectrum_chart(const Explanation& e) {
  Chart chart{
      "Eigenvalues of Lambda, sorted", {"share of eigenvalues at or below"}, {"eigenvalue"}};
  Line line{.name = e.mixer, .marks = false, .colour = mixer_colour(e.mixer)};
  for (size_t i = 0; i < e.spectrum.size(); ++i)
    line.points.push_back({double(i) / double(e.spectrum.size() - 1), e.spectrum[i]});
  chart.series = {line};
  return chart;
}

Chart half_life_chart(const Explanation& e) {
  Chart chart{
      "Half-lives, sorted", {"share of eigenvalues at or below"}, {"half-life, tokens", true}};
  Line line{.name = e.mixer, .marks = false, .colour = mixer_colour(e.mixer)};
  for (size_t i = 0; i < e.spectrum.size(); ++i) {
    const double tokens = half_life(e.spectrum[i]);
    if (tokens > 0 && tokens < 1e9)
      line.points.push_back({double(i) / double(e.spectrum.size() - 1), tokens});
  }
  chart.series = {line};
  chart.x.low = 0;
  chart.x.high = 1;
  return chart;
}

Bars order_bars(const Explanation& e) {
  Bars bars{"Share of each order of the exponential", {"mean |x^n / n!| over the sum of all"}};
  for (size_t n = 0; n < e.orders.size(); ++n) {
    if ((n > 4 && e.orders[n] < 1e-5) || (n > 10 && e.orders[n] < 1e-3)) continue;
    bars.bars.push_back({.name = fmt::format("order {}", n), .value = e.orders[n]});
    bars.bars.back().colour = mixer_colour(e.mixer);
    bars.bars.back().text =
        e.orders[n] < 1e-5 ? "below 0.001 %" : fmt::format("{:.2g} %", 100 * e.orders[n]);
  }
  return bars;
}

HeatMap map_picture(const Explanation& e, const std::string& title) {
  return {title, "t", "s", e.T, e.T, e.map};
}

}  // namespace horner
