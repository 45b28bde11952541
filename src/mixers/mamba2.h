// Mamba-2: a decay per head whose step size also scales the input (arXiv:2405.21060).
//
//   [z, x', B, C, dt] = x W_in;   [x', B, C] = SiLU(conv([x', B, C]))   E = expand D, heads of P
//   dt_h = softplus(dt_h + b_h);   a_h = e^{-A_h dt_h}, A_h = e^{A_log} > 0
//   S_t = a_t S_{t-1} + dt_t B_t^T x'_t,  y_t = C_t S_t + D_h x'_t  B, C: N numbers per group
//   out = RMSNorm(y * SiLU(z)) W_out
//
// block = bare is the SSD of arXiv:2405.15731: x' = x, one head of D, no z, conv or norm, b = 0 and A
// = 1 at first.
//
// Start as in the authors' code: A uniform in [1,16], dt log-uniform in [1e-3, 1e-1], D = 1; conv
// with a bias.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/short_conv.h"

namespace horner {

struct Mamba2Options {
  int64_t state = 64;
  int64_t expand = 2;
  int64_t head = 64;
  int64_t groups = 1;
  int64_t conv = 4;
  bool skip = true;
  std::string block = "mamba2";
  double step_low = 1e-3, step_high = 1e-1;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("state", state, "N: width of B and C");
    visit("expand", expand, "inner width over D");
    visit("head", head, "P: width of a head; there are expand D / P");
    visit("groups", groups, "how many B and C; each serves heads / groups heads");
    visit("conv", conv, "kernel of the short convolution; 0: none");
    visit("skip", skip, "add D_h x");
    visit("block", block, "bare: the recurrence alone, of x itself", {"mamba2", "bare"});
    visit("step_low", step_low, "smallest step size at the start");
    visit("step_high", step_high, "largest step size at the start");
  }
};

class Mamba2 : public Mixer {
 public:
  using Options = Mamba2Options;
  Mamba2(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  std::string equation(std::string_view listed) const override;

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  at::Tensor mix_bare(const at::Tensor& x, Pass& pass) const;

  const Options o_;
  const int64_t E_, H_;
  Linear in_, out_;
  ShortConv conv_;
  at::Tensor step_bias_, A_log_, skip_;  // (H)
  HeadNorm norm_;
};

}  // namespace horner
