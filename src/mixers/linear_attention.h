// Linear attention (arXiv:2006.16236) with any feature map, and powers on top of it
// (arXiv:2507.23632).
//
//   A_ts = phi(q_t).phi(k_s)                         features/features.h
//   o_t  = sum_{s<=t} p(A_ts) v_s / sum_{s<=t} p(A_ts),  out = o W_o
//   p(A) = A;  power n:  A^n,  or with series: 1 + A + .. + A^n/n!, both of A / sqrt(F)
//   norm = sum divides as above, at least by eps; none does not; l2: o_t / |o_t|; gate: sigmoid(x_t Wg + bg) o_t / t
//   cosine (arXiv:2409.18747): v_s / s^{sigmoid(c_h)}, c_h = 0.5 at first, and no sum
//
// Chosen here: the default norm is sum, and it is refused where a weight can be negative (identity,
// cosine; fourier is allowed as in arXiv:2103.02143); A alone takes no 1/sqrt(K), as in the first
// paper. Positions rotate q and k before phi, so they rotate the state only where phi is the
// identity.
#pragma once

#include "mixers/mixer.h"
#include "nn/features/features.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/position/position.h"
#include "nn/short_conv.h"

namespace horner {

struct LinearAttentionOptions {
  int64_t heads = 4;
  int64_t groups = 0;
  int64_t key = 0;
  bool bias = false;
  bool causal = true;
  std::string feature = "elu1";
  int64_t feature_dim = 64;
  std::string norm = "sum";
  int64_t power = 1;
  bool series = false;
  int64_t conv = 0;
  double eps = 1e-6;
  PositionOptions position;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "query heads H");
    visit("groups", groups, "key/value heads G; 0: as many as heads");
    visit("key", key, "K: width of a query and key; 0: D / H");
    visit("bias", bias, "q, k, v and out have biases");
    visit("causal", causal, "a token reads the past and itself; false: both directions");
    visit("feature", feature, "the feature map", feature_names());
    visit("feature_dim", feature_dim, "random features of favor and fourier");
    visit("norm", norm, "what divides the sum of weighted values", {"sum", "none", "l2", "gate"});
    visit("power", power, "power of the weights");
    visit("series", series, "all powers up to it, over n!");
    visit("conv", conv, "kernel of the short convolution on q, k, v; 0: none");
    visit("eps", eps, "the sum is at least this");
    visit("position", position, "where a token stands");
  }
};

class LinearAttention : public Mixer {
 public:
  using Options = LinearAttentionOptions;
  LinearAttention(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  std::string equation(std::string_view listed) const override;
  bool causal() const override { return o_.causal; }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  const int64_t G_, K_, V_;
  Linear q_, k_, v_, out_, norm_gate_;
  ShortConv conv_;
  Position position_;
  Features features_;
  HeadNorm norm_;
  at::Tensor exponent_;  // (G): c
};

}  // namespace horner
