// How sure a number is: Student's interval over seeds, a paired bootstrap over test examples.
#pragma once

#include <cstdint>
#include <vector>

#include "core/json.h"

namespace horner {

double mean(const std::vector<double>& x);
double median(std::vector<double> x);            // of an even number the mean of the middle two
double deviation(const std::vector<double>& x);  // with n - 1; 0 of one number

// I_x(a,b), by its continued fraction.
double incomplete_beta(double a, double b, double x);
// The t that Student's distribution with `freedom` degrees stays below with probability p.
double student_quantile(double p, double freedom);

struct Interval {
  double mean = 0;
  double half = 0;  // mean +- half; NaN for a single number
  int64_t n = 0;
  double low() const { return mean - half; }
  double high() const { return mean + half; }
  bool holds(double x) const { return low() <= x && x <= high(); }
  Json json() const;
};

// mean +- t s / sqrt(n), t the quantile of n - 1 degrees of freedom.
Interval t_interval(const std::vector<double>& x, double level = 0.95);

struct Bootstrap {
  double mean = 0, low = 0, high = 0;  // of the difference, and the middle 95 % of the draws
  int64_t n = 0, draws = 0;
  Json json() const;
};

// Draws the n pairs (a_i, b_i) again with replacement, `draws` times; numbers by Philox.
Bootstrap paired_bootstrap(
    const std::vector<double>& a,
    const std::vector<double>& b,
    int64_t draws = 10000,
    uint64_t seed = 0
);

}  // namespace horner
