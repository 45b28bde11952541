// RetNet: linear attention with one constant decay per head (arXiv:2307.08621).
//
//   q, k = rot(x Wq), rot(x Wk) / sqrt(K);   v = x Wv, twice as wide
//   S_t = a_h S_{t-1} + k_t^T v_t,  o_t = q_t S_t        a_h = 1 - 2^{-5-h}, h = 0 .. H-1
//   out = (SiLU(x Wg) * norm(o)) Wo                      norm per head, without weights
//
// Weights as in the authors' code: Xavier uniform, gain 2^{-2.5}, of Wo 2^{-1}. The paper's group
// norm is layer, later code took rms: an option. Its row scalings before that norm do nothing, eps
// aside, and are left out.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/position/position.h"

namespace horner {

struct RetNetOptions {
  int64_t heads = 4;
  double expand_k = 1, expand_v = 2;
  std::string norm = "layer";
  PositionOptions position;

  RetNetOptions() { position.kind = "rope"; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("expand_k", expand_k, "width of all keys over D");
    visit("expand_v", expand_v, "width of all values over D");
    visit("norm", norm, "per head, before the gate", {"layer", "rms"});
    visit("position", position, "where a token stands");
  }
};

class RetNet : public Mixer {
 public:
  using Options = RetNetOptions;
  RetNet(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  std::string equation(std::string_view listed) const override;

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  Linear q_, k_, v_, gate_, out_;
  HeadNorm norm_;
  Position position_;
};

}  // namespace horner
