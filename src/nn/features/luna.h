// LUNA's learned feature map (arXiv:2512.08061): M projections, each through R small scalar
// networks.
//
//   u_i = x.w_i + b_i                                  i = 1..M
//   separate   y_ir = fc2_r(relu(fc1_r(u_i)))          R networks 1 -> E -> 1
//   shared     y_i: = fc2(relu(fc1(u_i)))              one network 1 -> E -> R
//   phi_{iR+r} = h(x) relu(y_ir) / sqrt(M)             h = 1, or e^{-|x|^2/(2 sqrt K)} (gauss)
//
// One map for q and k and for all heads: the kernel phi(x).phi(y) is then positive definite, and >=
// 0 by the last relu. Start: w N(0,1)/sqrt(K), b 0, fc1 U(-1,1), fc2 U(-1/sqrt E, 1/sqrt E), biases
// likewise. The paper's ch_rms averages over time, future tokens included, so we do not offer it. The paper does not state M
// and R per task. If q and k are near 0 at the start, a channel has its value at u = 0. Then all R networks are dead, and the
// channel never learns, with probability 2^-R.
#pragma once

#include <torch/nn/module.h>

#include "core/options.h"

namespace horner {

struct LunaMapOptions {
  int64_t projections = 16;
  int64_t channels = 4;
  int64_t hidden = 64;
  bool shared = false;
  bool nonnegative = true;
  std::string envelope = "none";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("projections", projections, "M");
    visit("channels", channels, "R: functions per projection; there are M R features");
    visit("hidden", hidden, "E: hidden width of a function");
    visit("shared", shared, "one network with R outputs instead of R networks");
    visit("nonnegative", nonnegative, "relu at the end");
    visit("envelope", envelope, "factor on all features", {"none", "gauss"});
  }
};

class LunaMap {
 public:
  LunaMap() = default;
  LunaMap(torch::nn::Module&, int64_t K, const LunaMapOptions&);
  at::Tensor operator()(const at::Tensor& x) const;  // (...,K) -> (...,M R)

 private:
  at::Tensor networks(const at::Tensor& u) const;  // (...,M) -> (...,M,R)

  LunaMapOptions o_;
  at::Tensor w_, b_;        // (M,K), (M)
  at::Tensor fc1_, bias1_;  // (R,E), or (1,E) shared
  at::Tensor fc2_, bias2_;  // (R,E), (R)
};

}  // namespace horner
