#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/number.h"

namespace horner {
namespace {

// The step of 1, 2 or 5 times a power of ten that cuts `span` into about `count` parts.
double nice_step(double span, int count) {
  const double raw = span / std::max(1, count), power = std::pow(10, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0}) {
    if (raw <= m * power * 1.0000001) return m * power;
  }
  return 10 * power;
}

// The same among powers of two: bytes are counted in KiB.
double binary_step(double span, int count) {
  return std::exp2(std::ceil(std::log2(span / std::max(1, count))));
}

void linear_ticks(Scale& s, const Axis& axis, int count) {
  const double span = s.high - s.low,
               step = axis.bytes ? binary_step(span, count) : nice_step(span, count);
  if (!axis.low) s.low = std::floor(s.low / step + 1e-9) * step;
  if (!axis.high) s.high = std::ceil(s.high / step - 1e-9) * step;
  for (double i = std::ceil(s.low / step - 1e-9); i * step <= s.high + 1e-9 * step; ++i)
    s.ticks.push_back(i == 0 ? 0 : i * step);
}

void log_ticks(Scale& s, double base, int count) {
  const double first = std::floor(std::log(s.low) / std::log(base)),
               last = std::ceil(std::log(s.high) / std::log(base));
  const double every = std::max(1.0, std::ceil((last - first) / std::max(1, count)));
  const bool fine = base == 10 && std::log10(s.high / s.low) < 2;
  for (double e = first; e <= last; e += every) {
    for (const double m : fine ? std::vector<double>{1, 2, 5} : std::vector<double>{1}) {
      const double tick = m * std::pow(base, e);
      if (tick >= s.low * (1 - 1e-9) && tick <= s.high * (1 + 1e-9)) s.ticks.push_back(tick);
    }
  }
  if (s.ticks.size() >= 2) return;
  s.ticks.clear();  // less than a power of the base: as on a linear axis
  const double step = nice_step(s.high - s.low, count);
  for (double i = std::ceil(s.low / step); i * step <= s.high; ++i) s.ticks.push_back(i * step);
}

}  // namespace

bool Scale::shows(double x) const { return std::isfinite(x) && (!log || x > 0); }

double Scale::place(double x) const {
  return log ? std::log(x / low) / std::log(high / low) : (x - low) / (high - low);
}

Scale make_scale(const Axis& axis, const std::vector<double>& values, int count) {
  Scale s;
  s.log = axis.log;
  bool any = false;
  for (const double x : values) {
    if (!s.shows(x)) continue;
    s.low = any ? std::min(s.low, x) : x;
    s.high = any ? std::max(s.high, x) : x;
    any = true;
  }
  if (!any) {
    s.low = axis.log ? 1 : 0;
    s.high = axis.log ? 10 : 1;
  }
  s.low = axis.low.value_or(s.low);
  s.high = axis.high.value_or(s.high);
  if (axis.log) {
    const double air = std::max(1.1, std::pow(s.high / s.low, 0.05));
    if (!axis.low) s.low /= air;
    if (!axis.high) s.high *= air;
    log_ticks(s, axis.base, count);
    return s;
  }
  if (s.high <= s.low) {  // one value
    const double half = s.low == 0 ? 1 : std::abs(s.low) / 2;
    s.high = s.low + half;
    if (!axis.low) s.low -= half;
  }
  linear_ticks(s, axis, count);
  return s;
}

std::string tick_text(const Axis& axis, double value) {
  if (axis.bytes) return short_bytes(value);
  if (value != 0 && std::abs(value) >= 1e6) return fmt::format("{:.3g}", value);
  return fmt::format("{:.6g}", value);
}

}  // namespace horner
