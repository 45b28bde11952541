#include "lab/theory/curve.h"

#include <ATen/Functions.h>

#include <cmath>

namespace horner::theory {
namespace {

constexpr double kNormal95 = 1.959963984540054;

}  // namespace

Estimate estimate(const at::Tensor& samples) {
  const double n = double(samples.numel());
  const double error = n < 2 ? INFINITY : samples.std().item<double>() / std::sqrt(n);
  return {samples.mean().item<double>(), error};
}

Json Interval::json() const { return {{"value", value}, {"low", low}, {"high", high}}; }

Interval interval(Estimate e) {
  return {e.value, e.value - kNormal95 * e.error, e.value + kNormal95 * e.error};
}

Interval ratio(Estimate e, double expected) {
  return interval({e.value / expected, e.error / std::abs(expected)});
}

Interval ratio(Estimate a, Estimate b) {
  const double r = a.value / b.value;
  return interval({r, std::abs(r) * std::hypot(a.error / a.value, b.error / b.value)});
}

std::optional<Interval> Curve::exponent() const {
  double s0 = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  int64_t count = 0;
  for (const Point& p : points) {
    if (p.L < shortest || p.measured.value <= 0) continue;
    const double x = std::log(double(p.L)), y = std::log(p.measured.value);
    const double relative = p.measured.error / p.measured.value;
    const double w = 1 / (relative * relative + 1e-24);  // exact points weigh alike
    s0 += w, sx += w * x, sy += w * y, sxx += w * x * x, sxy += w * x * y;
    ++count;
  }
  if (count < 2) return std::nullopt;
  const double spread = sxx - sx * sx / s0;
  return interval({(sxy - sx * sy / s0) / spread, 1 / std::sqrt(spread)});
}

Interval Curve::pooled() const {
  double weights = 0, sum = 0;
  for (const Point& p : points) {
    const double w = std::pow(*p.predicted / p.measured.error, 2);
    weights += w, sum += w * p.measured.value / *p.predicted;
  }
  return interval({sum / weights, 1 / std::sqrt(weights)});
}

Json Curve::json() const {
  Json list = Json::array();
  for (const Point& p : points) {
    Json point = {{"L", p.L}, {"measured", p.measured.value}, {"error", p.measured.error}};
    if (p.predicted) point["predicted"] = *p.predicted;
    list.push_back(point);
  }
  Json json = {{"part", part}, {"name", name}, {"quantity", quantity}, {"points", list}};
  if (const auto k = exponent()) {
    json["exponent"] = k->json();
    json["fitted_from"] = shortest;
  }
  return json;
}

}  // namespace horner::theory
