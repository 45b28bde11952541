// Where a token stands: a rotation of queries and keys, before any feature map.
//
//   pairs (j, j + P), P = K/2:   rot(x, th)_j = x_j cos th_j - x_{j+P} sin th_j
//                                rot(x, th)_{j+P} = x_j sin th_j + x_{j+P} cos th_j
//   none             th = 0
//   rope             th_t = t temp, temp_j = base^{-2j/K}             (arXiv:2104.09864)
//   selective_rope   th_t = temp c_t, c_t = c_{t-1} + phi_t          (arXiv:2511.17388)
//
// Rope for longer texts, f the factor and L the original length:
//   linear   temp_j / f                                                (arXiv:2306.15595)
//   llama3   n = L temp_j / 2 pi turns in the original length:
//            temp_j / f if n < low, temp_j if n > high, between them linear in n          (Llama 3.1)
//
// The increment phi_t of selective_rope, P numbers per key/value head, from the layer's input x:
//   xh   = x_h / sqrt(|x_h|^2 + 1e-6), one slice of D/G per head
//   full rank   phi_h = xh_h What_h, What_h = s_h W_h / |columns of W_h|      (rank = 0)
//   low rank    phi = (xh W1) W2
//   conv        phi = act(short convolution of phi), kernel 4     skip   phi_t - phi_{t-1}
//   bias        phi += exp(beta)
//   gate        phi *= sigmoid(xh Wg + bg), one number per head or (rank 16) per angle
// The state carries the conv's tail and c, in fp64: a plain fp32 sum is off by 0.06 at 10^6 tokens.
//
// Left open by the paper: the 1e-6 under the root, and bg = 0. A decay per key channel (GLA) does
// not commute with the rotation; tie_pair_decay gives both channels of a pair the same decay.
#pragma once

#include "nn/linear.h"
#include "nn/short_conv.h"

namespace horner {

struct PositionOptions {
  std::string kind = "none";
  double base = 10000;
  int64_t rank = 0;
  std::string increment = "conv";
  std::string activation = "silu";
  bool bias = false;
  std::string gate = "head";
  std::string temperature = "rope";
  double theta = 0.9999;
  double temperature_max = 1;
  std::string scaling = "none";
  double scaling_factor = 8;
  double scaling_low = 1;
  double scaling_high = 4;
  int64_t scaling_length = 8192;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("kind", kind, "how q and k are rotated", {"none", "rope", "selective_rope"});
    visit("base", base, "base of rope's frequencies; the selective paper: 500000");
    visit("rank", rank, "selective: rank of the angles' projection; 0: full, weight-normalised");
    visit("increment", increment, "selective: convolution or difference", {"conv", "skip"});
    visit("activation", activation, "selective: after the convolution", {"none", "silu"});
    visit("bias", bias, "selective: add exp(beta), beta = 0 at first: starts as rope");
    visit("gate", gate, "selective: factor on the angles", {"none", "head", "angle"});
    visit("temperature", temperature, "selective: spectrum of the angles", {"rope", "rfa"});
    visit("theta", theta, "selective: rfa's spectrum ends at tan(theta pi/2); below 1");
    visit("temperature_max", temperature_max, "selective: the largest temperature");
    visit("scaling", scaling, "rope: frequencies for longer texts", {"none", "linear", "llama3"});
    visit("scaling_factor", scaling_factor, "scaling: divides the frequencies, at least 1");
    visit("scaling_low", scaling_low, "llama3: fewer turns in the original length are divided");
    visit("scaling_high", scaling_high, "llama3: more turns in the original length are kept");
    visit("scaling_length", scaling_length, "llama3: the original length");
  }
};

class Position {
 public:
  Position() = default;
  // Angles for G key/value heads of K. Sizes that cannot be rotated are refused, in the name of the mixer.
  Position(torch::nn::Module&, int64_t D, int64_t G, int64_t K, const PositionOptions&);

  // Replaces q (B,T,H,K) and k (B,T,G,K) by their rotations.
  void rotate(const at::Tensor& x, at::Tensor& q, at::Tensor& k, Pass& pass) const;

 private:
  at::Tensor increments(const at::Tensor& x, Pass& pass) const;  // (B,T,G,P)

  PositionOptions o_;
  int64_t G_ = 0;
  int64_t P_ = 0;
  at::Tensor weight_;  // (G,D/G,P)
  at::Tensor length_;  // (G): s_h
  Linear down_, up_, gate_down_, gate_;
  ShortConv conv_;
  at::Tensor beta_;  // (G,P)
};

at::Tensor rotated(const at::Tensor& x, const at::Tensor& angle);  // (B,T,H,K), angle (B,T,H|1,P)
// Temperatures (P), in fp64.
at::Tensor rope_temperatures(int64_t P, double base, at::Device device = at::kCPU);
at::Tensor rfa_temperatures(int64_t P, double theta, at::Device device = at::kCPU);
// Rope's temperatures (P) under the settings' scaling and largest temperature.
at::Tensor rope_spectrum(int64_t P, const PositionOptions&, at::Device device = at::kCPU);

}  // namespace horner
