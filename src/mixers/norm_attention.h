// Normalised attention: linear attention divided by a learned function of the token
// (arXiv:2405.15731).
//
//   q, k = x Wqk,  v = x Wv,  nu = x Weta + off_h            all with bias
//   S_t = S_{t-1} + k_t^T v_t,  o_t = q_t S_t / eta(nu_t),  out = o W_o
//
//   normaliser   exp    softplus       sigmoid         and of arXiv:2510.09379:
//   eta(nu)      e^nu   log(1 + e^nu)  1/(1 + e^-nu)   exp_f: e^f(nu); f exp elu softplus sigmoid
//
// offset = linear: off_h = linspace(4, 9, H), learned, as in the later paper, which keeps long
// sequences in range; exp_exp with it has eta ~ 1e24 and is refused. The first paper has no offset:
// |o_t| grows with t. eta is at most e^60. Both directions (causal = false): S = sum over all s, for classifiers. No
// 1/sqrt(K) and no positions; scale_keys divides k by sqrt(K).
#pragma once

#include "mixers/mixer.h"
#include "nn/features/features.h"
#include "nn/linear.h"
#include "nn/short_conv.h"

namespace horner {

struct NormAttentionOptions {
  int64_t heads = 1;
  bool causal = true;
  int64_t key = 0;
  std::string normaliser = "exp";
  std::string offset = "none";
  std::string feature = "identity";
  bool scale_keys = false;
  int64_t conv = 0;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("causal", causal, "a token reads the past and itself; false: both directions");
    visit("key", key, "key dim K of a head; 0: D / H");
    visit(
        "normaliser",
        normaliser,
        "what o is divided by",
        {"exp", "softplus", "sigmoid", "exp_exp", "exp_elu", "exp_softplus", "exp_sigmoid"}
    );
    visit("offset", offset, "added to nu", {"none", "linear"});
    visit("feature", feature, "map of q and k", {"identity", "elu1"});
    visit("scale_keys", scale_keys, "k / sqrt(K)");
    visit("conv", conv, "kernel of the short convolution on v, q, k; 0: none");
  }
};

class NormAttention : public Mixer {
 public:
  using Options = NormAttentionOptions;
  NormAttention(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  bool causal() const override { return o_.causal; }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  const int64_t K_;
  Linear q_, k_, v_, eta_, out_;
  ShortConv conv_;
  Features features_;
  at::Tensor offset_;  // (H)
};

at::Tensor normaliser(std::string_view kind, const at::Tensor& nu);  // eta

}  // namespace horner
