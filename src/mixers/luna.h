// LUNA: linear attention with a learned feature map (arXiv:2512.08061).
//
//   o_t = sum_s phi(q_t).phi(k_s) v_s / max(sum_s phi(q_t).phi(k_s), eps),  out = o W_o
//   phi: features/luna.h
//
// No 1/sqrt(K), decay, gate or norm. causal = false reads both directions, as the paper ran it.
// Left open: eps (1e-6 as a floor here); without the last relu the sum can vanish, so nonnegative =
// false needs norm = none.
#pragma once

#include "mixers/mixer.h"
#include "nn/features/luna.h"
#include "nn/linear.h"
#include "nn/position/position.h"

namespace horner {

struct LunaOptions {
  int64_t heads = 4;
  bool causal = true;
  std::string norm = "sum";
  double eps = 1e-6;
  LunaMapOptions map;
  PositionOptions position;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "heads H");
    visit("causal", causal, "a token reads the past and itself; false: both directions");
    visit("norm", norm, "divide by the sum of the weights, or not", {"sum", "none"});
    visit("eps", eps, "the sum is at least this");
    visit("map", map, "the feature map");
    visit("position", position, "where a token stands");
  }
};

class Luna : public Mixer {
 public:
  using Options = LunaOptions;
  Luna(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  std::string equation(std::string_view listed) const override;
  bool causal() const override { return o_.causal; }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  Linear q_, k_, v_, out_;
  LunaMap map_;
  Position position_;
};

}  // namespace horner
