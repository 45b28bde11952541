// RG-LRU in the recurrent block of Griffin (arXiv:2402.19427).
//
//   y = gelu(x Wy + by);  u = conv(x Wx + bx), kernel 4 with bias;             width E
//   r_t = sigmoid(u_t Wr + br),  i_t = sigmoid(u_t Wi + bi)     block-diagonal, one block per head
//   log a_t = -c r_t softplus(Lambda), c = 8
//   h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t u_t;                the first token: h_1 = i_1 u_1
//   out = (h * y) Wo + bo
//
// Start: a^c uniform in [0.9, 0.999] through Lambda; Linear N(0, 0.02) and biases 0. As in the
// authors' code the first token of a sequence is not multiplied by sqrt(1 - a^2), which is what an
// empty past asks for; gelu is its tanh approximation there.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/short_conv.h"

namespace horner {

struct RgLruOptions {
  int64_t heads = 4;
  double expand = 1;
  int64_t conv = 4;
  double power = 8;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "blocks of the gates' projections");
    visit("expand", expand, "width of the recurrence over D");
    visit("conv", conv, "kernel of the short convolution; 0: none");
    visit("power", power, "c in a = e^{-c r softplus(Lambda)}");
  }
};

class RgLru : public Mixer {
 public:
  using Options = RgLruOptions;
  RgLru(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  Linear gate_, in_, out_;
  ShortConv conv_;
  at::Tensor recurrence_weight_, input_weight_;  // (H,E/H,E/H)
  at::Tensor recurrence_bias_, input_bias_;      // (H,E/H)
  at::Tensor Lambda_;                            // (H,E/H)
};

}  // namespace horner
