// A gated causal convolution: BaseConv of Zoology (arXiv:2312.04927), the short mixer below the
// mixers of Based.
//
//   y_t = (x_t W + b1) * (sum_{j<kernel} h_j x_{t-j} + b2) + x_t         element by element, h (D,kernel)
//
// The paper's equation has no "+ x_t", the authors' code has it (residual); neither projects the
// output. Start: W N(0, 0.02) and b1 = 0, h and b2 uniform within 1/sqrt(kernel), as there. The
// state is the last kernel - 1 inputs (the authors count kernel of them).
//
// dense is the plain convolution over time and channels, without gate and residual:
//   y_t = sum_{j<kernel} x_{t-j} W_j + b2                        W (D, kernel D), as torch's Conv1d
//
// No op runs here. Per channel it is a shift register with a gated reading, which is a linear
// system with F = kernel, and map and dsf are read off that:
//   Lambda = the shift e_{j+1} <- e_j,  B = e_1,  C_t = (x_t W + b1) h,  D = 1 or 0,  u = x
// The constant (x_t W + b1) b2 reads no token: it is added after, as an output projection would be.
// dense mixes channels, so every channel of the output is a head that reads the same register of
// whole tokens, F = kernel D: Lambda = the shift by a token, B_t = x_t in the newest place, C = W,
// u = 1, and its map holds contributions: map_ts = (x_s W_{t-s}) of that channel.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/short_conv.h"

namespace horner {

struct ConvOptions {
  std::string kind = "gated";
  int64_t kernel = 3;
  bool residual = true;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("kind", kind, "gated per channel, or over all channels", {"gated", "dense"});
    visit("kernel", kernel, "tokens that are read, the current one included");
    visit("residual", residual, "gated: adds the input to the output");
  }
};

class Conv : public Mixer {
 public:
  using Options = ConvOptions;
  Conv(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  at::Tensor windows(const at::Tensor& x, Pass& pass) const;  // (B,T,kernel D): oldest token first
  static void set_core(Core&, const System&, const at::Tensor& o);
  System shift_register(const at::Tensor& x, const at::Tensor& gate) const;  // gated
  System shared_register(const at::Tensor& x) const;                         // dense

  const Options o_;
  Linear gate_, dense_;
  ShortConv filter_;
  at::Tensor offset_;  // (D): b2
};

}  // namespace horner
