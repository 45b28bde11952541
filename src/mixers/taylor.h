// Softmax's Taylor series up to order N, as a sum of recurrent networks (arXiv:2507.23632).
//
//   E_ts = p(x_ts) = sum_n c_n x_ts^n, c_n = 1/n!; everything else stands in series.h
//
// State: C(K+N,N) V numbers per head whatever T is. norm = sum wants p > 0, so an even order; an
// odd one is refused unless the norm is free of the sum. Learned: c_n = 2 sigmoid(s_n)/n!, s_n = 0
// at first. decay_place = inside: order n decays with the n-th power (arXiv:2602.17363 found no
// gain).
#pragma once

#include "mixers/series.h"

namespace horner {

struct TaylorOptions : SeriesOptions {
  int64_t order = 2;
  std::string coefficients = "taylor";
  std::string decay_place = "outside";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("order", order, "highest power N of q.k that is kept");
    visit("coefficients", coefficients, "of the series", {"taylor", "learned"});
    visit(
        "decay_place",
        decay_place,
        "the decay multiplies the power, or q.k inside it",
        {"outside", "inside"}
    );
    SeriesOptions::visit(visit);
  }
};

class Taylor : public Series {
 public:
  using Options = TaylorOptions;
  Taylor(int64_t D, const Options& options);
  Json options() const override { return to_json(options_); }
  std::string equation(std::string_view listed) const override;

 protected:
  Weighted weigh(const Inputs& in, bool sum, Pass& pass) override;
  bool always_normalised() const override { return false; }

 private:
  const Options options_;
  at::Tensor s_;  // (N+1)
};

}  // namespace horner
