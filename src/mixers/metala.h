// MetaLA: the key is 1 - decay (arXiv:2411.10741).
//
//   x <- SiLU(conv(x)), kernel 4
//   q = x Wq, l = x Wa (D -> D/2);  v = x Wv (D -> D);  u = x Wg + bg
//   g = log sigmoid(l) / 16,  a = e^g,  k = 1 - a
//   S_t = diag(a_t) S_{t-1} + k_t^T v_t,  o_t = q_t S_t / sqrt(K)
//   o_t += sigmoid(w_t v_t),  w_t = sum_i q_ti k_ti waug_i     self-augmentation, waug = 0 at start
//   out = (SiLU(u) * LayerNorm_head(o)) Wo                                 eps 1e-5, no weights
//
// As in the authors' layer; the printed one lacks the sigmoid and 1/sqrt(K). Weights N(0, 0.02),
// the conv U(-0.5, 0.5). key = own gives k its own projection (the paper's ablation). With a norm
// that does not take the mean away, self-augmentation is not void at the start.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/short_conv.h"

namespace horner {

struct MetaLaOptions {
  int64_t heads = 4;
  double expand_k = 0.5, expand_v = 1;
  double temperature = 16;
  int64_t conv = 4;
  bool augment = true;
  std::string key = "decay";
  std::string norm = "layer";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("expand_k", expand_k, "width of all queries over D");
    visit("expand_v", expand_v, "width of all values over D");
    visit("temperature", temperature, "the log of the decay is divided by this");
    visit("conv", conv, "kernel of the short convolution on x; 0: none");
    visit("augment", augment, "self-augmentation with the current token");
    visit("key", key, "1 - decay, or a projection of its own", {"decay", "own"});
    visit("norm", norm, "per head, before the gate", {"layer", "rms"});
  }
};

class MetaLa : public Mixer {
 public:
  using Options = MetaLaOptions;
  MetaLa(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  std::string equation(std::string_view listed) const override;

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  Linear q_, k_, v_, decay_, gate_, out_;
  ShortConv conv_;
  at::Tensor augment_;  // (H,K)
  HeadNorm norm_;
};

}  // namespace horner
