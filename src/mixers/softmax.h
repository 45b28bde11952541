// Softmax attention (arXiv:1706.03762), and its variants without the sum (arXiv:2507.23632).
//
//   E_ts = e^{x_ts}, x_ts = q_t.k_s / sqrt(K); everything else stands in series.h
//
// State: keys and values of every token. With decay the weights are those of a forgetting
// transformer (arXiv:2503.02130): G_s = g_1 + .. + g_s enters as one more key dimension, x_ts -
// G_s, and cancels but for the differences G_t - G_s; q, k, v are then fp32.
#pragma once

#include "mixers/series.h"

namespace horner {

class Softmax : public Series {
 public:
  using Options = SeriesOptions;
  Softmax(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  std::string equation(std::string_view listed) const override;
  std::vector<std::string> voids() const override;

 protected:
  Weighted weigh(const Inputs& in, bool sum, Pass& pass) override;
  bool always_normalised() const override { return true; }
};

// Softmax attention under decay g (B,T,G); the log of the normaliser is that of e^{x_ts + G_t -
// G_s}.
Result forgetting_attention(const Inputs& in, Options options, Pass& pass);

}  // namespace horner
