#include "lab/explain/heads.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/number.h"
#include "core/threads.h"

namespace horner {
namespace {

using Numbers = std::vector<double>;

void add(Numbers& sum, const Numbers& more) {
  if (sum.size() < more.size()) sum.resize(more.size(), 0);
  for (size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
}

// One query: the keys it sees and its scores.
struct Query {
  int64_t t = 0;
  std::vector<int64_t> s;
  Numbers x, w;

  void read(const HeadScores& scores, int64_t query) {
    t = query;
    const float* row = scores.x.data_ptr<float>() + t * scores.x.size(1);
    const int64_t begin = scores.window > 0 ? std::max<int64_t>(0, t - scores.window + 1) : 0;
    s.clear();
    x.clear();
    for (int64_t key = 0; key < std::min(scores.sinks, begin); ++key) s.push_back(key);
    for (int64_t key = begin; key <= t; ++key) s.push_back(key);
    for (const int64_t key : s) x.push_back(double(row[key]));
    const double largest = *std::max_element(x.begin(), x.end());
    double total = 0;
    w.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) total += w[i] = std::exp(x[i] - largest);
    for (double& weight : w) weight /= total;
  }
};

// series_n of n = 0, 2, 4, .. of the scores less `shift`.
Numbers series_errors(const Query& query, double shift) {
  const size_t count = query.x.size();
  Numbers x(query.x), term(count, 1.0), p(count, 1.0), errors;
  for (double& score : x) score -= shift;
  for (int64_t order = 0; order < kSeriesOrders; ++order) {
    for (int64_t n = 2 * order - 1; n >= 1 && n <= 2 * order; ++n) {
      const double over = 1 / double(n);
      for (size_t i = 0; i < count; ++i) {
        term[i] *= x[i] * over;  // x^n / n!
        p[i] += term[i];
      }
    }
    double total = 0, error = 0;
    for (size_t i = 0; i < count; ++i) total += p[i];
    const double share = 1 / total;
    for (size_t i = 0; i < count; ++i) error += std::abs(query.w[i] - p[i] * share);
    errors.push_back(error / 2);
  }
  return errors;
}

double square_sum(const Numbers& x, double shift) {
  double sum = 0;
  for (const double score : x) sum += (score - shift) * (score - shift);
  return sum;
}

void add_weights(HeadMeasures& sum, const Query& query, const Sight& sight) {
  Numbers by_distance(size_t(std::bit_width(uint64_t(query.t))) + 1, 0);
  for (size_t i = 0; i < query.w.size(); ++i) {
    const double w = query.w[i];
    const int64_t back = query.t - query.s[i];
    const bool sink = query.s[i] < sight.sinks;
    sum.distance += w * double(back);
    if (w > 0) sum.entropy -= w * std::log(w);
    if (sink) sum.first += w;
    if (sink || back < sight.window) sum.inside += w;
    if (back == 1) sum.previous += w;
    by_distance[size_t(std::bit_width(uint64_t(back)))] += w;
  }
  add(sum.reach, by_distance);
}

// The weight of tokens that follow an earlier copy of this one; nothing if there is no copy.
std::optional<double> weight_after_copies(const Query& query, const std::vector<int64_t>& tokens) {
  std::optional<double> weight;
  for (size_t i = 0; i < query.s.size(); ++i) {
    const int64_t s = query.s[i];
    if (s == 0 || tokens[size_t(s - 1)] != tokens[size_t(query.t)]) continue;
    weight = weight.value_or(0) + query.w[i];
  }
  return weight;
}

void divide(Numbers& list, double by) {
  for (double& x : list) x /= by;
}

}  // namespace

std::optional<int64_t> HeadMeasures::sufficient(const std::vector<double>& series) {
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i] <= kSeriesTolerance) return 2 * int64_t(i);
  }
  return {};
}

Json HeadMeasures::json() const {
  const auto order = [](const std::vector<double>& list) {
    const std::optional<int64_t> n = sufficient(list);
    return n ? Json(*n) : Json();
  };
  return {
      {"layer", layer},
      {"head", head},
      {"distance", distance},
      {"entropy", entropy},
      {"inside", inside},
      {"first", first},
      {"previous", previous},
      {"repeats", number_or_null(repeats)},
      {"spread", spread},
      {"centred_spread", centred_spread},
      {"reach", reach},
      {"order", order(series)},
      {"centred_order", order(centred_series)},
      {"series", series},
      {"centred_series", centred_series}};
}

HeadScores scores_of(const Core& core, int64_t row, int64_t head, const at::Tensor& m) {
  const int64_t r = core.in.q.size(2) / core.in.k.size(2);
  const double scale = core.options.scale.value_or(1 / std::sqrt(double(core.in.q.size(3))));
  const at::Tensor q = scale * core.in.q[row].select(1, head).to(at::kFloat);  // (T,K)
  const at::Tensor k = core.in.k[row].select(1, head / r).to(at::kFloat);      // (T,K)
  return {
      at::matmul(q, k.t()).contiguous(),
      at::matmul(q, m[head / r].to(at::kFloat)).contiguous(),
      core.options.window,
      core.options.sinks};
}

at::Tensor weights_of(const HeadScores& scores) {
  const int64_t T = scores.x.size(0);
  at::Tensor seen = at::ones({T, T}, at::kBool).tril();
  if (scores.window > 0) {
    const at::Tensor near = seen & at::ones({T, T}, at::kBool).triu(1 - scores.window);
    seen = near | (seen & (at::arange(T) < scores.sinks));
  }
  return at::softmax(
      scores.x.masked_fill(seen.logical_not(), -std::numeric_limits<float>::infinity()), -1
  );
}

void HeadSums::add(const HeadScores& scores, const std::vector<int64_t>& tokens) {
  const int64_t T = scores.x.size(0);
  HORNER_CHECK(int64_t(tokens.size()) == T, "[heads] {} tokens, {} queries", tokens.size(), T);
  const int64_t threads = at::get_num_threads();
  std::vector<HeadSums> parts(size_t(threads), HeadSums{sight_});
  on_threads(threads, [&](const Team& team) {
    HeadSums& own = parts[size_t(team.thread)];
    Query query;
    for (int64_t t = team.thread; t < T; t += team.threads) {
      query.read(scores, t);
      const double shift = double(scores.shift.data_ptr<float>()[t]);
      add_weights(own.sum_, query, sight_);
      horner::add(own.sum_.series, series_errors(query, 0));
      horner::add(own.sum_.centred_series, series_errors(query, shift));
      own.sum_.spread += square_sum(query.x, 0);
      own.sum_.centred_spread += square_sum(query.x, shift);
      own.pairs_ += int64_t(query.x.size());
      ++own.queries_;
      if (const std::optional<double> weight = weight_after_copies(query, tokens)) {
        own.sum_.repeats += *weight;
        ++own.copies_;
      }
    }
  });
  for (const HeadSums& part : parts) {
    for (const auto field : kHeadNumbers) sum_.*field += part.sum_.*field;
    for (const auto field : kHeadLists) horner::add(sum_.*field, part.sum_.*field);
    queries_ += part.queries_;
    copies_ += part.copies_;
    pairs_ += part.pairs_;
  }
}

HeadMeasures HeadSums::measures() const {
  HeadMeasures mean = sum_;
  for (double HeadMeasures::*field :
       {&HeadMeasures::distance,
        &HeadMeasures::entropy,
        &HeadMeasures::inside,
        &HeadMeasures::first,
        &HeadMeasures::previous})
    mean.*field /= double(queries_);
  mean.repeats /= double(copies_);  // NaN without copies
  mean.spread = std::sqrt(mean.spread / double(pairs_));
  mean.centred_spread = std::sqrt(mean.centred_spread / double(pairs_));
  double within = 0;
  for (double& weight : mean.reach) weight = within += weight / double(queries_);
  divide(mean.series, double(queries_));
  divide(mean.centred_series, double(queries_));
  return mean;
}

}  // namespace horner
