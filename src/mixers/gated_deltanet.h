// Gated DeltaNet: the delta rule with Mamba-2's decay (arXiv:2412.06464).
//
//   q, k, v = SiLU(conv(x W));  q, k /= their lengths
//   beta = sigmoid(x Wb), or 2 sigmoid (negative eigenvalues)
//   g = -e^{A_log} softplus(x Wa + b),  a = e^g per head
//   S_t = a_t (I - beta_t k_t^T k_t) S_{t-1} + beta_t k_t^T v_t,  o_t = q_t S_t / sqrt(K)
//   out = (RMSNorm_head(o) * SiLU(x Wz)) Wo
//
// value_heads > heads: each q and k serves several values, as in the models built on it. Start: A
// uniform in (0,16], softplus(b) log-uniform in [1e-3, 1e-1]. The length's eps 1e-6 is that of the
// authors' code.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/position/position.h"
#include "nn/short_conv.h"

namespace horner {

struct GatedDeltaNetOptions {
  int64_t heads = 4;
  int64_t value_heads = 0;
  double expand_k = 1, expand_v = 2;
  int64_t conv = 4;
  bool negative = false;
  double norm_eps = 1e-5;
  PositionOptions position;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads of q and k");
    visit("value_heads", value_heads, "heads of v; 0: as many as heads");
    visit("expand_k", expand_k, "width of all keys over D");
    visit("expand_v", expand_v, "width of all values over D");
    visit("conv", conv, "kernel of the short convolution on q, k, v; 0: none");
    visit(
        "negative",
        negative,
        "beta up to 2: eigenvalues of the transition in [-1,1] instead of [0,1]"
    );
    visit("norm_eps", norm_eps, "eps of the norm per head");
    visit("position", position, "where a token stands");
  }
};

class GatedDeltaNet : public Mixer {
 public:
  using Options = GatedDeltaNetOptions;
  GatedDeltaNet(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  const int64_t H_;  // of v
  Linear q_, k_, v_, beta_, decay_, gate_, out_;
  at::Tensor A_log_, step_bias_;  // (H)
  ShortConv conv_;
  HeadNorm norm_;
  Position position_;
};

}  // namespace horner
