#include "lab/exact.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "lab/statistics.h"

namespace horner {
namespace {

// The x in [low, high] at which a rising function passes `level`.
template <class F>
double crossing(double low, double high, double level, F rising) {
  for (int i = 0; i < 60 && high - low > 1e-12; ++i) {
    const double middle = (low + high) / 2;
    (rising(middle) < level ? low : high) = middle;
  }
  return (low + high) / 2;
}

// P(0), .., P(n) successes of n.
std::vector<double> binomial(int64_t n, double p) {
  std::vector<double> list(size_t(n) + 1, 0);
  if (p <= 0 || p >= 1) {
    list[p <= 0 ? 0 : size_t(n)] = 1;
    return list;
  }
  list[0] = std::pow(1 - p, double(n));
  for (int64_t k = 0; k < n; ++k)
    list[size_t(k) + 1] = list[size_t(k)] * double(n - k) / double(k + 1) * p / (1 - p);
  return list;
}

// The most likely p_a if p_a - p_b = d: the root of the likelihood's cubic (Farrington and Manning 1990).
double likely_share(Share a, Share b, double d) {
  const double pa = a.value(), pb = b.value(), ratio = double(b.n) / double(a.n);
  const double c3 = 1 + ratio, c2 = -(1 + ratio + pa + ratio * pb + d * (ratio + 2));
  const double c1 = d * d + d * (2 * pa + ratio + 1) + pa + ratio * pb, c0 = -pa * d * (1 + d);
  const double v = std::pow(c2 / (3 * c3), 3) - c2 * c1 / (6 * c3 * c3) + c0 / (2 * c3);
  const double u =
      std::copysign(std::sqrt(std::max(0.0, std::pow(c2 / (3 * c3), 2) - c1 / (3 * c3))), v);
  const double cosine = u == 0 ? 0 : std::clamp(v / (u * u * u), -1.0, 1.0);
  return 2 * u * std::cos((M_PI + std::acos(cosine)) / 3) - c2 / (3 * c3);
}

double score_statistic(Share a, Share b, double d) {
  const double pa = std::clamp(likely_share(a, b, d), std::max(0.0, d), std::min(1.0, 1 + d));
  const double pb = std::clamp(pa - d, 0.0, 1.0);
  const double variance = pa * (1 - pa) / double(a.n) + pb * (1 - pb) / double(b.n);
  const double away = a.value() - b.value() - d;
  if (variance < 1e-12)
    return std::abs(away) < 1e-9 ? 0 : std::copysign(std::numeric_limits<double>::max(), away);
  return away / std::sqrt(variance);
}

// P(|Z_k| > c at some look), Z_k = S_k / sqrt(n_k), S a Gaussian walk: the density of the walks that have not yet crossed is
// carried from look to look on a grid.
double crossing_probability(const std::vector<int64_t>& looks, double c) {
  constexpr int kPoints = 121;
  std::vector<double> at{0}, mass{1};
  int64_t before = 0;
  for (const int64_t n : looks) {
    const double sd = std::sqrt(double(n - before)), bound = c * std::sqrt(double(n));
    std::vector<double> next(kPoints), there(kPoints, 0);
    for (int i = 0; i < kPoints; ++i) {
      next[size_t(i)] = bound * (2.0 * i / (kPoints - 1) - 1);
      const int simpson = i == 0 || i == kPoints - 1 ? 1 : (i % 2 == 1 ? 4 : 2);
      const double weight = simpson * 2 * bound / (kPoints - 1) / 3;
      for (size_t j = 0; j < at.size(); ++j) {
        const double z = (next[size_t(i)] - at[j]) / sd;
        there[size_t(i)] += mass[j] * weight * std::exp(-z * z / 2) / (sd * std::sqrt(2 * M_PI));
      }
    }
    at = std::move(next);
    mass = std::move(there);
    before = n;
  }
  return 1 - std::accumulate(mass.begin(), mass.end(), 0.0);
}

// A seed's share in (observed - expected) events: 1 if it solved, less the hazard it went through.
std::vector<double> log_rank_scores(const std::vector<Reached>& seeds) {
  std::vector<double> scores(seeds.size());
  for (size_t i = 0; i < seeds.size(); ++i) {
    double hazard = 0;
    for (const Reached& event : seeds) {
      if (!event.solved || event.step > seeds[i].step) continue;
      hazard += 1 / double(std::count_if(seeds.begin(), seeds.end(), [&](const Reached& s) {
                  return s.step >= event.step;
                }));
    }
    scores[i] = double(seeds[i].solved) - hazard;
  }
  return scores;
}

}  // namespace

Range clopper_pearson(Share share, double error) {
  HORNER_CHECK(share.n > 0 && share.yes >= 0 && share.yes <= share.n, "a share needs seeds");
  thread_local std::map<std::tuple<int64_t, int64_t, double>, Range> known;
  const auto key = std::tuple{share.yes, share.n, error};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const double yes = double(share.yes), no = double(share.n - share.yes);
  const auto reaches = [&](double p) { return incomplete_beta(yes, no + 1, p); };  // P(X >= yes)
  const auto exceeds = [&](double p) { return incomplete_beta(yes + 1, no, p); };  // P(X > yes)
  return known[key] = {
             yes == 0 ? 0 : crossing(0, 1, error / 2, reaches),
             no == 0 ? 1 : crossing(0, 1, 1 - error / 2, exceeds)};
}

double share_p(Share a, Share b, double difference) {
  HORNER_CHECK(a.n > 0 && b.n > 0, "a comparison of shares needs seeds of both arms");
  if (std::abs(difference) >= 1) return difference > 0;
  const double observed = score_statistic(a, b, difference) * (1 - 1e-9) - 1e-9;
  std::vector<std::pair<int64_t, int64_t>> beyond;  // outcomes that speak as strongly
  for (int64_t x = 0; x <= a.n; ++x) {
    for (int64_t y = 0; y <= b.n; ++y) {
      if (score_statistic({x, a.n}, {y, b.n}, difference) >= observed) beyond.emplace_back(x, y);
    }
  }
  double largest = 0;
  const double least = std::max(0.0, -difference), most = std::min(1.0, 1 - difference);
  constexpr int kPoints = 100;
  for (int i = 0; i <= kPoints; ++i) {
    const double pb = least + (most - least) * i / kPoints, pa = pb + difference;
    const std::vector<double> of_a = binomial(a.n, pa), of_b = binomial(b.n, pb);
    double sum = 0;
    for (const auto& [x, y] : beyond) sum += of_a[size_t(x)] * of_b[size_t(y)];
    largest = std::max(largest, sum);
  }
  return largest;
}

Range share_difference(Share a, Share b, double error) {
  thread_local std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, double>, Range> known;
  const auto key = std::tuple{a.yes, a.n, b.yes, b.n, error};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const auto bound = [&](Share x, Share y) {  // lowest difference that is not rejected
    double low = -1, high = 1;
    while (high - low > 1e-3) {
      const double middle = (low + high) / 2;
      (share_p(x, y, middle) <= error / 2 ? low : high) = middle;
    }
    return low;
  };
  return known[key] = {bound(a, b), -bound(b, a)};
}

double log_rank_p(const std::vector<Reached>& a, const std::vector<Reached>& b) {
  HORNER_CHECK(!a.empty() && !b.empty(), "a log-rank test needs seeds of both arms");
  std::vector<Reached> all = a;
  all.insert(all.end(), b.begin(), b.end());
  const std::vector<double> scores = log_rank_scores(all);
  const double observed =
      std::accumulate(scores.begin(), scores.begin() + int64_t(a.size()), 0.0) - 1e-9;
  constexpr int64_t kDraws = 20000;
  const double assignments = std::exp(
      std::lgamma(double(all.size() + 1)) - std::lgamma(double(a.size() + 1)) -
      std::lgamma(double(b.size() + 1))
  );
  int64_t beyond = 0, count = 0;
  if (assignments < kDraws + 0.5) {
    std::vector<char> first(all.size(), 0);  // whether a seed is assigned to a
    std::fill(first.end() - int64_t(a.size()), first.end(), 1);
    do {
      double sum = 0;
      for (size_t i = 0; i < all.size(); ++i) sum += first[i] ? scores[i] : 0;
      beyond += sum >= observed;
      ++count;
    } while (std::next_permutation(first.begin(), first.end()));
    return double(beyond) / double(count);
  }
  for (; count < kDraws; ++count) {
    Random random(0, Split::test, Stream::noise, uint64_t(count));
    double sum = 0;
    for (const int64_t i : random.distinct(int64_t(all.size()), int64_t(a.size())))
      sum += scores[size_t(i)];
    beyond += sum >= observed;
  }
  return double(beyond + 1) / double(count + 1);
}

double median_step(std::vector<Reached> seeds) {
  std::vector<double> steps;
  for (const Reached& seed : seeds)
    steps.push_back(seed.solved ? double(seed.step) : std::numeric_limits<double>::infinity());
  return median(steps);
}

double pocock_level(const std::vector<int64_t>& looks, double error) {
  HORNER_CHECK(!looks.empty() && error > 0 && error < 1, "a level needs a look and an error");
  if (looks.size() == 1) return error;
  thread_local std::map<std::pair<std::vector<int64_t>, double>, double> known;
  const auto key = std::pair{looks, error};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  double low = 0, high = 8;
  while (high - low > 1e-6) {
    const double c = (low + high) / 2;
    (crossing_probability(looks, c) > error ? low : high) = c;
  }
  return known[key] = std::erfc(high / std::sqrt(2.0));
}

}  // namespace horner
