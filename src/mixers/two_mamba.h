// 2Mamba: the square of linear attention's weights, with decay and a short convolution
// (arXiv:2602.17363).
//
//   q, k, v = conv(x W), kernel 2, no activation;  g = -softplus(x W_A) per head
//   o_t = sum_{s<=t} d_ts E_ts v_s / max(sum_s d_ts E_ts, 1e-8),  d_ts = e^{g_{s+1} + .. + g_t}
//   out = o W_o
//
//   kernel   E_ts                      state
//   square   x_ts^2 (2Mamba)           K(K+1)/2 features and fewer orders, which the op also keeps
//   exp      e^{x_ts} (2Mamba-E)       every key and value          x_ts = q_t.k_s / sqrt(K)
//   linear   x_ts, no sum (Mamba-2S)   K V; v softplus(x W_dt), RMSNorm of all heads before W_o
//
// No positions. The convolution has a bias, as in the authors' code; W_A and W_dt have none. A query
// orthogonal to every key gives 0, never 0/0. The paper's build-up from linear attention is
// kernel = linear with decay, step and conv off or on and conv_activation = silu_qk.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/short_conv.h"

namespace horner {

struct TwoMambaOptions {
  int64_t heads = 4;
  std::string kernel = "square";
  int64_t conv = 2;
  std::string conv_activation = "none";
  bool conv_bias = true;
  bool decay = true, step = true;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("kernel", kernel, "2Mamba, 2Mamba-E, Mamba-2S", {"square", "exp", "linear"});
    visit("conv", conv, "kernel of the short convolution on q, k, v; 0: none");
    visit(
        "conv_activation",
        conv_activation,
        "after the convolution; silu_qk: of q and k only",
        {"none", "silu", "silu_qk"}
    );
    visit("conv_bias", conv_bias, "the convolution has a bias");
    visit("decay", decay, "the past decays");
    visit("step", step, "of kernel = linear: v is scaled by softplus(x W_dt)");
  }
};

class TwoMamba : public Mixer {
 public:
  using Options = TwoMambaOptions;
  TwoMamba(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  std::string equation(std::string_view listed) const override;

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  Linear q_, k_, v_, decay_, step_, out_;
  ShortConv conv_;
  HeadNorm norm_;
};

}  // namespace horner
