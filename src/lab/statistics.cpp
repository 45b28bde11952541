#include "lab/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/check.h"
#include "core/random.h"

namespace horner {

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return x.empty() ? std::nan("") : sum / double(x.size());
}

double median(std::vector<double> x) {
  if (x.empty()) return std::nan("");
  std::sort(x.begin(), x.end());
  const size_t n = x.size();
  return n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

double deviation(const std::vector<double>& x) {
  if (x.size() < 2) return 0;
  const double m = mean(x);
  double sum = 0;
  for (const double v : x) sum += (v - m) * (v - m);
  return std::sqrt(sum / double(x.size() - 1));
}

namespace {

// The fraction 1 + d1/(1 + d2/(1 + ..)) of I_x(a,b), by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto away = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / away(1 - (a + b) * x / (a + 1)), f = d;
  for (int m = 1; m < 1000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + even * d);
    c = away(1 + even / c);
    f *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + odd * d);
    c = away(1 + odd / c);
    f *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return f;
}

}  // namespace

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(
      std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x)
  );
  // The fraction converges fast below the mean; beyond it the other tail is taken.
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_quantile(double p, double freedom) {
  HORNER_CHECK(p > 0 && p < 1, "a probability must be between 0 and 1, got {}", p);
  HORNER_CHECK(freedom >= 1, "degrees of freedom must be at least 1, got {}", freedom);
  if (p == 0.5) return 0;
  if (p < 0.5) return -student_quantile(1 - p, freedom);
  thread_local std::map<std::pair<double, double>, double> known;
  const auto key = std::pair{p, freedom};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  // P(|t| > x) = I_{f/(f + x^2)}(f/2, 1/2)
  const auto tail = [&](double x) {
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + x * x)) / 2;
  };
  double low = 0, high = 1;
  while (tail(high) > 1 - p) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-14 * high; ++i) {
    const double middle = (low + high) / 2;
    (tail(middle) > 1 - p ? low : high) = middle;
  }
  return known[key] = (low + high) / 2;
}

Interval t_interval(const std::vector<double>& x, double level) {
  Interval i;
  i.n = int64_t(x.size());
  i.mean = mean(x);
  i.half = x.size() < 2 ? std::numeric_limits<double>::quiet_NaN()
                        : student_quantile(0.5 + level / 2, double(x.size() - 1)) * deviation(x) /
                              std::sqrt(double(x.size()));
  return i;
}

Bootstrap paired_bootstrap(
    const std::vector<double>& a, const std::vector<double>& b, int64_t draws, uint64_t seed
) {
  HORNER_CHECK(
      a.size() == b.size() && !a.empty(),
      "a paired bootstrap takes as many of both, got {} and {}",
      a.size(),
      b.size()
  );
  std::vector<double> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  Bootstrap result;
  result.mean = mean(difference);
  result.n = int64_t(a.size());
  result.draws = draws;
  std::vector<double> means(static_cast<size_t>(draws));
  for (int64_t d = 0; d < draws; ++d) {
    Random random(seed, Split::test, Stream::noise, uint64_t(d));
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += difference[size_t(random.integer(result.n))];
    means[size_t(d)] = sum / double(a.size());
  }
  std::sort(means.begin(), means.end());
  result.low = means[size_t(double(draws - 1) * 0.025)];
  result.high = means[size_t(std::ceil(double(draws - 1) * 0.975))];
  return result;
}

Json Interval::json() const {
  return {{"mean", mean}, {"half", std::isnan(half) ? Json() : Json(half)}, {"n", n}};
}

Json Bootstrap::json() const {
  return {{"mean", mean}, {"low", low}, {"high", high}, {"n", n}, {"draws", draws}};
}

}  // namespace horner
