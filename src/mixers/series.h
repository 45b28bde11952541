// What softmax and its Taylor series share: everything around the kernel E_ts = e^{x_ts} or
// p_N(x_ts).
//
//   q, k, v = conv(x W)      heads H of q, groups G of k and v; conv and qk_norm are options
//   q, k = feature(rotate(q, k));  k -= centre;  v *= sigmoid(x Wi + bi)
//   y_t  = sum_{s<=t} d_ts E_ts v_s,   d_ts = e^{g_{s+1} + .. + g_t},   x_ts = q_t.k_s / sqrt(K)
//   o_t  = output gate and normaliser of y_t;  out = o W_o
//
//   norm       o_t                                           extra state
//   sum        y_t / sum_s d_ts E_ts                         taylor: one column
//   l2         y_t / |y_t|             rms, layer            with a weight, layer with norm_bias; none
//   unit_d     V y_t / |y_t|                                 none
//   count      y_t / t                                       t
//   gate       sigmoid(x_t Wg + bg) y_t / t                  t
//   cumgate    y_t / max(sum_{s<=t} e^{x_s Wg + bg}, 1)      one number per head
//   clampden   y_t / max(sum E, 1)     detach                the same, no gradient through it
//   none       y_t
//
// Both directions (causal = false): sums over every s, and T in the place of t.
//
// Source: arXiv:2507.23632 and its code; decay g = -softplus(x W_A) from arXiv:2602.17363, shifted
// g_t = (x_{t-1} W_A + b) / 1024 of either sign from the code of the former. Left
// open or chosen here: norms rms and layer of softmax act on the normalised output (a positive
// factor before them does nothing, their eps aside); gates have a bias that starts at 0; centre =
// mean is measured by calibrate, learned is trained, both start at 0. A clamped score is
// no power series, so the clamp belongs to softmax alone.
#pragma once

#include "mixers/mixer.h"
#include "nn/features/features.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/position/position.h"
#include "nn/short_conv.h"

namespace horner {

struct SeriesOptions {
  int64_t heads = 4;
  int64_t groups = 0;
  bool causal = true;
  int64_t key = 0;
  int64_t value = 0;
  bool bias = false;
  bool qkv_bias = false;
  std::string norm = "sum";
  bool norm_bias = false;
  std::string norm_start = "one";
  std::string feature = "identity";
  std::string centre = "none";
  std::optional<double> clamp;
  bool input_gate = false;
  std::string output_gate = "none";
  std::string decay = "none";
  int64_t conv = 0;
  std::string conv_activation = "silu";
  bool qk_norm = false;
  double qk_norm_eps = 1e-6;
  PositionOptions position;

  SeriesOptions() { position.kind = "rope"; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "query heads H");
    visit("groups", groups, "key/value heads G; 0: as many as heads");
    visit("causal", causal, "a token reads the past and itself; false: both directions");
    visit("key", key, "K: width of a query and key; 0: D / H");
    visit("value", value, "V: width of a value; 0: D / H");
    visit("bias", bias, "q, k, v and out have biases");
    visit("qkv_bias", qkv_bias, "q, k and v have biases, out has none");
    visit("norm_bias", norm_bias, "norm = layer adds a bias");
    visit(
        "norm_start",
        norm_start,
        "weight of rms and layer at the start; unit: 1/sqrt(V)",
        {"one", "unit"}
    );
    visit(
        "norm",
        norm,
        "what divides the sum of weighted values",
        {"sum",
         "l2",
         "rms",
         "layer",
         "unit_d",
         "count",
         "gate",
         "cumgate",
         "detach",
         "clampden",
         "none"}
    );
    visit(
        "feature",
        feature,
        "activation of q and k before the kernel",
        {"identity", "relu", "elu1", "cosine"}
    );
    visit("centre", centre, "vector taken from every key", {"none", "mean", "learned"});
    visit("clamp", clamp, "of softmax: scores above this count as this; the paper's is 5");
    visit("input_gate", input_gate, "sigmoid gate per head on the values");
    visit(
        "output_gate",
        output_gate,
        "sigmoid gate per head before or after the norm",
        {"none", "pre", "post"}
    );
    visit("decay", decay, "log-decay per key head from x", {"none", "softplus", "shifted"});
    visit("conv", conv, "kernel of the short convolution on q, k, v; 0: none");
    visit("conv_activation", conv_activation, "after the convolution", {"none", "silu"});
    visit("qk_norm", qk_norm, "RMS norm of q and k per head, before the rotation");
    visit("qk_norm_eps", qk_norm_eps, "its epsilon");
    visit("position", position, "where a token stands");
  }
};

class Series : public Mixer {
 public:
  Series(const std::string& name, int64_t D, const SeriesOptions& options);
  void calibrate(const at::Tensor& x) override;  // centre = mean: of the keys of x
  std::vector<std::string> voids() const override;
  bool causal() const override { return o_.causal; }
  bool stops_gradients() const override { return o_.norm == "detach"; }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

  // The weighted values: y_t itself where log_sum is undefined, else y_t / e^{log_sum}.
  struct Weighted {
    at::Tensor y;        // (B,T,H,V)
    at::Tensor log_sum;  // (B,T,H): of d_ts E_ts, where `sum` asks for it
  };
  virtual Weighted weigh(const Inputs& in, bool sum, Pass& pass) = 0;
  // Under the settings that are not the kernel's. `kernel` is E_ts; `where` says what its names mean.
  std::string equation_of(const std::string& kernel, const std::string& where) const;
  // Whether weigh divides by the sum anyway.
  virtual bool always_normalised() const = 0;
  at::Tensor keys(const at::Tensor& x) const;  // (B,T,G,K), before the centre is taken from them

  const SeriesOptions o_;
  const int64_t G_, K_, V_;

 private:
  Inputs project(const at::Tensor& x, Pass& pass) const;
  at::Tensor log_divisor(const at::Tensor& x, const at::Tensor& log_sum, Pass& pass)
      const;  // (B,T,H)

  Linear q_, k_, v_, out_, input_gate_, output_gate_, norm_gate_, decay_;
  ShortConv conv_;
  HeadNorm q_norm_, k_norm_, norm_;
  Position position_;
  Features features_;
  at::Tensor centre_;     // (G,K)
  at::Tensor norm_bias_;  // (V)
};

}  // namespace horner
