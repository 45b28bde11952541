// Sliding-window softmax attention, as in SWAX (arXiv:2509.24552).
//
//   o_t = sum_{t-w < s <= t} softmax_s( rot(q_t).rot(k_s) / sqrt(K) ) v_s,  out = o W_o
//
// State: a ring of w keys and values per key/value head, keys after the rotation. The window may
// differ from one forward to the next (Context::window), for training with stochastic windows; a
// state goes on only with the window that made it. Left open by the paper: w counts the token
// itself, rope's base is 10000, no biases. sinks keeps the first tokens visible as well
// (arXiv:2309.17453). Both directions (causal = false): |t - s| < w, as in Longformer
// (arXiv:2004.05150), for classifiers.
#pragma once

#include "mixers/mixer.h"
#include "nn/linear.h"
#include "nn/position/position.h"

namespace horner {

struct WindowOptions {
  int64_t heads = 4;
  int64_t groups = 0;
  int64_t head = 0;
  bool causal = true;
  int64_t window = 128;
  int64_t sinks = 0;
  PositionOptions position;

  WindowOptions() { position.kind = "rope"; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "query heads H");
    visit("groups", groups, "key/value heads G; 0: as many as heads");
    visit("head", head, "width of a query, key and value; 0: D / H");
    visit("causal", causal, "a token reads the past and itself; false: w - 1 on either side");
    visit("window", window, "how many of the last tokens are visible, the current one included");
    visit("sinks", sinks, "how many of the first tokens stay visible");
    visit("position", position, "where a token stands");
  }
};

class Window : public Mixer {
 public:
  using Options = WindowOptions;
  Window(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  bool causal() const override { return o_.causal; }

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  const Options o_;
  const int64_t G_;
  Linear q_, k_, v_, out_;
  Position position_;
};

}  // namespace horner
