// Gated linear attention: a decay per key channel that depends on the token (arXiv:2312.06635).
//
//   q, k = x Wq, x Wk (D -> D/2),  v = x Wv;   g = log sigmoid((x W1) W2 + b) / 16        rank 16
//   S_t = diag(e^{g_t}) S_{t-1} + k_t^T v_t,  o_t = q_t S_t / sqrt(K)
//   out = (SiLU(x Wr + br) * norm(o)) Wo
//
// The paper's norm is layer, the authors' later code takes rms with a weight: the default here.
// Weights as in that code: Xavier uniform, gain 2^{-2.5}. With rotated q and k a pair of channels
// should decay alike (tie_pair_decay), see position/position.h.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/position/position.h"
#include "nn/short_conv.h"

namespace horner {

struct GlaOptions {
  int64_t heads = 4;
  double expand_k = 0.5, expand_v = 1;
  int64_t rank = 16;
  double temperature = 16;
  std::string norm = "rms";
  bool gate = true;
  int64_t conv = 0;
  bool tie_pair_decay = false;
  PositionOptions position;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("expand_k", expand_k, "width of all keys over D");
    visit("expand_v", expand_v, "width of all values over D");
    visit("rank", rank, "rank of the decay's projection");
    visit("temperature", temperature, "the log of the forget gate is divided by this");
    visit("norm", norm, "per head, before the gate", {"rms", "layer", "none"});
    visit("gate", gate, "the output is gated by SiLU(x Wr + br)");
    visit("conv", conv, "kernel of the short convolution on q, k, v; 0: none");
    visit("tie_pair_decay", tie_pair_decay, "channels j and j + K/2 decay alike");
    visit("position", position, "where a token stands");
  }
};

class Gla : public Mixer {
 public:
  using Options = GlaOptions;
  Gla(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  std::string equation(std::string_view listed) const override;

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  Linear q_, k_, v_, decay_down_, decay_up_, gate_, out_;
  ShortConv conv_;
  HeadNorm norm_;
  Position position_;
};

}  // namespace horner
