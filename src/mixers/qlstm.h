// qLSTM: an LSTM whose gates do not see the state (arXiv:2405.15731).
//
//   plain     a = sigmoid(x Wf),  h_t = a_t h_{t-1} + sigmoid(x Wi) (x Wu),  o = sigmoid(x Wo) h
//   reversed  a = sigmoid(-(x Wf))^{relu(s)}, s = 1 at first: S6's e^{-s softplus(x Wf)}
//   block = plain: out = o W, width D
//   block = full (as the paper ran it): [b, m] = x W_in (D -> 2 2D), m = conv(m), gates of m,
//           out = (gelu(b) * o) W
//
// Left open: the plain block has biases in the gates; Linear N(0, 0.02), biases 0.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/short_conv.h"

namespace horner {

struct QlstmOptions {
  std::string transition = "plain";
  std::string block = "full";
  int64_t expand = 2;
  int64_t conv = 4;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("transition", transition, "the forget gate", {"plain", "reversed"});
    visit("block", block, "around the cell", {"full", "plain"});
    visit("expand", expand, "width of the full block over D");
    visit("conv", conv, "kernel of the full block's short convolution; 0: none");
  }
};

class Qlstm : public Mixer {
 public:
  using Options = QlstmOptions;
  Qlstm(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  const int64_t E_;
  Linear in_, gates_, write_, out_;
  ShortConv conv_;
  at::Tensor power_;  // (1): s
};

}  // namespace horner
