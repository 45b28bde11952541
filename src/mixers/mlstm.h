// mLSTM: linear attention with an exponential input gate, as in xLSTM-7B and SWAX
// (arXiv:2405.04517, 2503.13427).
//
//   q, k = x Wq, x Wk (D -> D/2),  v, og = x Wv, x Wog (D -> D)
//   i = c tanh((x Wi + bi)/c),  f = c tanh((x Wf + bf)/c), c = 15, one number per head
//   C_t = sigmoid(f_t) C_{t-1} + e^{i_t} k_t^T v_t,  n_t the same with v = 1
//   h_t = q_t C_t / max(|q_t n_t|, 1), q / sqrt(K)
//   input_gate = sigmoid: sigmoid(i) in the place of e^i
//   out = (sigmoid(og) * LayerNorm_head(h)) Wout
//
// Start: Wi = Wf = 0, bi = -10, bf = linspace(3, 6, H); other weights N(0, 2/(5D)), Wout N(0,
// 4/(L^2 D)) with L = layers of the model. The eps 1e-6 of the reference under h is left out: the
// norm makes it void. The norm has one weight per channel, no bias.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace horner {

struct MlstmOptions {
  int64_t heads = 4;
  double expand_k = 0.5, expand_v = 1;
  std::string input_gate = "exponential";
  double cap = 15;
  double input_bias = -10;
  int64_t layers = 12;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("expand_k", expand_k, "width of all keys over D");
    visit("expand_v", expand_v, "width of all values over D");
    visit("input_gate", input_gate, "weight of a write", {"exponential", "sigmoid"});
    visit("cap", cap, "gates are cap tanh(. / cap)");
    visit("input_bias", input_bias, "bias of the input gate at the start");
    visit("layers", layers, "layers of the model, for the start of Wout");
  }
};

class Mlstm : public Mixer {
 public:
  using Options = MlstmOptions;
  Mlstm(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  std::string equation(std::string_view listed) const override;

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  Linear q_, k_, v_, output_gate_, input_gate_, forget_gate_, out_;
  HeadNorm norm_;
};

}  // namespace horner
