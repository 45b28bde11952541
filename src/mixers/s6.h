// S6, the recurrence of Mamba, in Mamba's block (arXiv:2312.00752).
//
//   [u, z] = x W_in (D -> 2E);  u = SiLU(conv(u))
//   [d, B, C] = u W_x (E -> R + 2N);  dt = softplus(d W_dt + b)                    per channel of E
//   h_t = e^{-A dt_t} h_{t-1} + dt_t u_t B_t,  y_t = C_t h_t + D u_t               A (E,N), h (E,N)
//   out = (y * SiLU(z)) W_out
//
// The recurrence is `scan` over E N channels; as `linear` it has E heads with K = N and V = 1,
// which is how map and dsf see it. Start: A = 1 .. N (stored as a log), D = 1, dt log-uniform in
// [1e-3, 1e-1], W_dt uniform +-R^{-1/2}. R = D/16 rounded up. block = bare is what arXiv:2405.15731
// ran: u = x, no W_in, conv, SiLU or gate, E = D, W_dt N(0, 0.02) and b = 0, so that dt starts at ln 2.
// block = ssd is their SSD as their code has it: d is one number that all channels share, dt = softplus(d + b)
// with a b per channel, and A is one trained number, 1 at first.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/short_conv.h"

namespace horner {

struct S6Options {
  int64_t state = 16;
  int64_t expand = 2;
  int64_t rank = 0;
  int64_t conv = 4;
  std::string block = "mamba";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("state", state, "N: numbers per channel");
    visit("expand", expand, "inner width E over D");
    visit("rank", rank, "R of the step size's projection; 0: D / 16 rounded up");
    visit("conv", conv, "kernel of the short convolution; 0: none");
    visit(
        "block",
        block,
        "mamba: conv, SiLU and gate; bare: none of them; ssd: bare, one A and d",
        {"mamba", "bare", "ssd"}
    );
  }
};

class S6 : public Mixer {
 public:
  using Options = S6Options;
  S6(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  const int64_t E_, R_;
  Linear in_, x_, step_, out_;
  ShortConv conv_;
  at::Tensor A_log_;  // (E,N); ssd: (1,1)
  at::Tensor skip_;   // (E)
};

}  // namespace horner
