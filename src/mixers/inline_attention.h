// InLine attention: normalised by subtraction, so different queries read differently
// (arXiv:2412.06590).
//
//   w_ts = qh_t.phi(k_s) + (1 - sum_r qh_t.phi(k_r)) / n,   qh_t = phi(q_t) / (n sqrt(K))
//   o_t  = sum_s w_ts v_s + sum_{j<w} rk_tj v_{t-j},        out = o W_o + b
//   as `linear`: keys [phi(k), 1], queries [qh_t, (1 - qh_t.z_t)/n], z_t = sum phi(k)
//
//   causal   n = t, sums over s <= t: streams (derived for Horner; not in the paper)
//   both     n = T, sums over all s: the paper's, for images
//
// Sums of k v and k and v apart lose an offset in fp32 (at 100 in both, an error of 2.5e-2); with k_1
// and v_1 taken from all tokens first they do not, and o is the same. k_1 and v_1 stand in the state.
//
// The local residual: rk_t = MLP(mean of x seen so far), grouped by head, GELU; both: taps t-1, t,
// t+1 of the mean over all tokens. With `columns` the tokens are an image, row by row: taps on a
// square around the token, the paper's 3x3, zeros beyond the edges. phi = identity is the default; w may be negative. o_1 = v_1 when the residual is 0. q, k, v, W_o have
// biases.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"

namespace horner {

struct InlineOptions {
  int64_t heads = 4;
  bool causal = true;
  std::string feature = "identity";
  int64_t residual = 3;
  int64_t columns = 0;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("causal", causal, "a token reads the past and itself; false: both directions");
    visit("feature", feature, "phi", {"identity", "relu", "leaky_relu", "exp"});
    visit("residual", residual, "taps of the local residual; 0: none");
    visit(
        "columns", columns, "of the image that the tokens are: the residual is a square; 0: none"
    );
  }
};

class InlineAttention : public Mixer {
 public:
  using Options = InlineOptions;
  InlineAttention(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  bool causal() const override { return o_.causal; }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  at::Tensor origin(const at::Tensor& y, Pass& pass) const;  // (B,T,H,K) -> (B,T|1,H,K)
  at::Tensor residual(const at::Tensor& x, const at::Tensor& v, const at::Tensor& n, Pass& pass)
      const;
  at::Tensor fused(
      const at::Tensor& x, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Pass& pass
  ) const;

  const Options o_;
  const int64_t taps_;
  Linear q_, k_, v_, out_;
  at::Tensor hidden_weight_, hidden_bias_;  // (H,K,K), (H,K)
  at::Tensor tap_weight_, tap_bias_;        // (H,K,taps K), (H,taps K)
};

}  // namespace horner
