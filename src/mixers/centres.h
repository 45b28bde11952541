// Attention over vector-quantised keys: softmax's weights around centres of the keys (arXiv:2309.16354 has order 0).
//
//   E_ts = e^{q_t.mu_c} p(q_t.(k_s - mu_c)), c the centre nearest to k_s (features/centres.h); everything else: series.h
//
// State: V + 1 numbers for each of C centres and key head at order 0, C(K+N,N) (V + 1) at order N, whatever T is. It is the op
// `linear` on C C(K+N,N) features under a sum normaliser. Keys that are centres are read exactly. The paper's update of
// the centres by moving averages is not offered: they are trained, and `calibrate` sets them by k-means.
#pragma once

#include "mixers/series.h"
#include "nn/features/centres.h"

namespace horner {

struct CentresOptions : SeriesOptions {
  int64_t count = 64;
  int64_t order = 0;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("count", count, "centres C of each key head");
    visit("order", order, "order N of the series around a centre, even");
    SeriesOptions::visit(visit);
  }
};

class Centres : public Series {
 public:
  using Options = CentresOptions;
  Centres(int64_t D, const Options& options);
  Json options() const override { return to_json(options_); }
  bool stops_gradients() const override {
    return Series::stops_gradients() || features_.straight_through();
  }
  void calibrate(const at::Tensor& x) override;  // centres: k-means of the keys of x
  void start(const HeadStatistics&) override;    // of the trained layer's keys

 protected:
  Weighted weigh(const Inputs& in, bool sum, Pass& pass) override;
  bool always_normalised() const override { return true; }

 private:
  const Options options_;
  CentreFeatures features_;
};

}  // namespace horner
