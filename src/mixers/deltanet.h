// DeltaNet: a write replaces what its key recalls (arXiv:2406.06484).
//
//   q, k, v = SiLU(conv(x W));  q, k /= their lengths
//   beta = sigmoid(x Wb), or 2 sigmoid (negative eigenvalues)
//   S_t = (I - beta_t k_t^T k_t) S_{t-1} + beta_t k_t^T v_t,  o_t = q_t S_t / sqrt(K)
//   out = RMSNorm_head(o) Wo
//
// beta in (0,1) keeps the transition's eigenvalues in [0,1]; in (0,2) they reach [-1,1], which
// parity needs (arXiv:2411.12537). Left open: weights start N(0, 0.02), as everywhere here; the
// conv has no bias.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/position/position.h"
#include "nn/short_conv.h"

namespace horner {

struct DeltaNetOptions {
  int64_t heads = 4;
  double expand_k = 1, expand_v = 1;
  int64_t conv = 4;
  bool negative = false;
  PositionOptions position;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("expand_k", expand_k, "width of all keys over D");
    visit("expand_v", expand_v, "width of all values over D");
    visit("conv", conv, "kernel of the short convolution on q, k, v; 0: none");
    visit(
        "negative",
        negative,
        "beta up to 2: eigenvalues of the transition in [-1,1] instead of [0,1]"
    );
    visit("position", position, "where a token stands");
  }
};

class DeltaNet : public Mixer {
 public:
  using Options = DeltaNetOptions;
  DeltaNet(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  Linear q_, k_, v_, beta_, out_;
  ShortConv conv_;
  HeadNorm norm_;
  Position position_;
};

}  // namespace horner
