// What attention heads do, from the scores x_ts of their queries t and keys s.
//
//   w_t       softmax of x_t over the keys that token t sees
//   distance  sum_s w_ts (t - s), in tokens             entropy  -sum_s w_ts log w_ts, in nats
//   inside    weight of the last `window` tokens (t among them) and of the first `sinks`
//   first     weight of the first `sinks` alone         previous weight of token t - 1
//   repeats   weight of the tokens after earlier copies of token t, over the t that have such copies
//   series_n  1/2 sum_s |w_ts - p_n(x_ts) / sum_r p_n(x_tr)|,  p_n(x) = 1 + x + .. + x^n / n!,  n even
//   centred   the same on x_ts - scale q_t.m, m the mean key: softmax does not change, the series does
//
// Each is a mean over the queries. series_n is the share of a query's weight that a series of order n puts elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "nn/core.h"

namespace horner {

constexpr int64_t kSeriesOrders = 17;      // orders 0, 2, 4, .., 32
constexpr double kSeriesTolerance = 0.05;  // of series_n: then order n suffices

struct HeadMeasures {
  int64_t layer = 0, head = 0;
  double distance = 0, entropy = 0, inside = 0, first = 0, previous = 0;
  double repeats = 0;                          // NaN if no token occurs twice
  double spread = 0, centred_spread = 0;       // root mean square of the scores
  std::vector<double> reach;                   // weight of the last 1, 2, 4, .. tokens
  std::vector<double> series, centred_series;  // of orders 0, 2, 4, ..

  // The smallest even order whose series is within kSeriesTolerance; nothing if none of them is.
  static std::optional<int64_t> sufficient(const std::vector<double>& series);
  Json json() const;
};

// What adds up over parts of a text and over heads.
inline constexpr double HeadMeasures::*kHeadNumbers[] = {
    &HeadMeasures::distance,
    &HeadMeasures::entropy,
    &HeadMeasures::inside,
    &HeadMeasures::first,
    &HeadMeasures::previous,
    &HeadMeasures::repeats,
    &HeadMeasures::spread,
    &HeadMeasures::centred_spread};
inline constexpr std::vector<double> HeadMeasures::*kHeadLists[] = {
    &HeadMeasures::reach, &HeadMeasures::series, &HeadMeasures::centred_series};

struct Sight {
  int64_t window = 64, sinks = 4;
};

// The scores of one head of a causal attention core, at the keys that a query sees.
struct HeadScores {
  at::Tensor x;                   // (T,T), row t: queries; only visible keys count
  at::Tensor shift;               // (T): scale q_t.m
  int64_t window = 0, sinks = 0;  // what the op itself lets a query see; 0: everything
};

// m (G,K): the mean key of each group.
HeadScores scores_of(const Core& core, int64_t row, int64_t head, const at::Tensor& m);

// The softmax weights.   (T,T)
at::Tensor weights_of(const HeadScores& scores);

// Sums over the queries of several sequences; `measures` are their means.
class HeadSums {
 public:
  explicit HeadSums(const Sight& sight) : sight_(sight) {}
  void add(const HeadScores& scores, const std::vector<int64_t>& tokens);
  HeadMeasures measures() const;

 private:
  const Sight sight_;
  HeadMeasures sum_;
  int64_t queries_ = 0, copies_ = 0, pairs_ = 0;
};

}  // namespace horner
