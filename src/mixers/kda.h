// Kimi Delta Attention: the delta rule with a decay per key channel (arXiv:2510.26692).
//
//   q, k, v = SiLU(conv(x W));  q, k /= their lengths
//   beta = sigmoid(x Wb), or 2 sigmoid (negative eigenvalues)
//   g = -e^{A_log} softplus((x W1) W2 + b),  a = e^g per key channel          rank V, A_log per head
//   S_t = (I - beta_t k_t^T k_t) diag(a_t) S_{t-1} + beta_t k_t^T v_t,  o_t = q_t S_t / sqrt(K)
//   out = (RMSNorm_head(o) * sigmoid((x W3) W4 + c)) Wo                       rank V
//
// The paper has K = V = 128 in each head, ranks as wide as a head, and a decay "similar to" that of Gated DeltaNet and
// Mamba. It leaves open the start, 1/sqrt(K) and c. Here they are those of the authors' code: A uniform in [1,16],
// softplus(b) log-uniform in [1e-3, 1e-1], lengths with eps 1e-6.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/position/position.h"
#include "nn/short_conv.h"

namespace horner {

struct KdaOptions {
  int64_t heads = 4;
  double expand_k = 1, expand_v = 1;
  int64_t rank = 0;
  int64_t conv = 4;
  bool negative = false;
  double norm_eps = 1e-5;
  PositionOptions position;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("expand_k", expand_k, "width of all keys over D");
    visit("expand_v", expand_v, "width of all values over D");
    visit("rank", rank, "rank of the decay's and of the gate's projection; 0: width of a value V");
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

class Kda : public Mixer {
 public:
  using Options = KdaOptions;
  Kda(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  Linear q_, k_, v_, beta_, decay_down_, decay_up_, gate_down_, gate_up_, out_;
  at::Tensor A_log_;      // (H)
  at::Tensor step_bias_;  // (H K)
  ShortConv conv_;
  HeadNorm norm_;
  Position position_;
};

}  // namespace horner
