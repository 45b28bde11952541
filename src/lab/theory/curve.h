// What an experiment measures: means with their errors for each prompt length L, and the exponent that fits them.
//
//   ln y_L = c + k ln L,   weighted by 1 / var(ln y_L),  var(ln y) = (error / y)^2
//
// The interval of k covers only sampling errors. Whether the curve is a power law at all must be seen from its points.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace horner::theory {

struct Estimate {
  double value = 0, error = 0;  // mean and its standard error
};

Estimate estimate(const at::Tensor& samples);  // (n) independent ones

// An interval of 95 %.
struct Interval {
  double value = 0, low = 0, high = 0;
  Json json() const;
};

Interval interval(Estimate);
Interval ratio(Estimate, double expected);  // measured / expected
Interval ratio(Estimate, Estimate);

struct Point {
  int64_t L;
  Estimate measured;
  std::optional<double> predicted;  // the closed form at this L, if there is one
};

struct Curve {
  std::string part, name, quantity;
  std::vector<Point> points;
  int64_t shortest = 0;  // the exponent is fitted over L >= shortest

  std::optional<Interval> exponent() const;  // none with fewer than two points
  Interval pooled() const;  // measured / predicted over every L, if the closed form is exact
  Json json() const;
};

}  // namespace horner::theory
