// A window of exact softmax attention, and a recurrence for the tokens beyond it: what a trained softmax model is converted to.
//
//   near   softmax over the last w tokens and the first s (sinks)               as `window`
//   far    the tokens that left the window and are no sinks, s <= u <= t - w, or all tokens; what reads them:
//
//   far              reads        its recurrence                                       (arXiv)
//   linear           left tokens  phi(q).phi(k), phi of features.h or luna.h           2410.10254
//   taylor           left tokens  e^{q.mu} p_N(q.(k - mu)), mu `centre`
//   centres          left tokens  features/centres.h                                   2309.16354
//   gla              all          S_t = diag(a_t) S + k^T v                            2312.06635
//   mlstm            all          C_t = a_t C + e^{i_t} k^T v, over max(|q.n|, 1)      2405.04517
//   gated_deltanet   all          S_t = a_t (I - b_t k^T k) S + b_t k^T v              2412.06464
//   kda              all          the same with a decay per key channel                2510.26692
//   none             nothing, the window alone
//
//   one normaliser   o_t = (Z_t near_t + z_t far_t) / (Z_t + z_t),   Z_t = sum_near e^{x_tu}
//   left tokens      z_t far_t = e^b sum_far w_tu v_u,  z_t = e^b sum_far w_tu,  b = far_bias of each head, 0 at first.
//                    No token is counted twice: the far op gets k and v of token t - w, which it reads off the window's state.
//   all              A recurrence returns no sum of weights, so z_t is estimated from the token that asks:
//                    z_t = n_t e^{x_t Wm + bm},  n_t = t - w - s + 1 far tokens, so e^{..} is a far token's mean weight.
//                    far_t = c y_t + m,  c = far_scale, m = far_mean of each head (the average value, which a state of
//                    recent tokens lacks),  y_t = q_t S_t, over its root mean square for gla and mlstm.
//                    q and k have length 1;  a = e^{-softplus(x Wd + bd)} for each key head or key channel (rank `rank`);
//                    b = sigmoid(x Wb + bb);  i = 15 tanh((x Wi + bi)/15). The recurrence reads all tokens, so it needs no
//                    delayed copy of its gates; z_t counts the far ones alone.
//
// q, k, v, out, their biases and the norms of q and k have the names and the meaning of `softmax`: its weights fit unchanged.
// start.h sets what is new in closed form. favor is no feature here: it drops a factor of each query that one normaliser needs.
#pragma once

#include "mixers/mixer.h"
#include "nn/features/centres.h"
#include "nn/features/features.h"
#include "nn/features/luna.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/position/position.h"

namespace horner {

struct HybridOptions {
  int64_t heads = 4;
  int64_t groups = 0;
  int64_t key = 0;
  int64_t value = 0;
  bool bias = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  double qk_norm_eps = 1e-6;
  int64_t window = 64;
  int64_t sinks = 4;
  std::string far = "gated_deltanet";
  std::string feature = "hedgehog";
  LunaMapOptions map;
  int64_t count = 64;
  std::optional<int64_t> order;
  int64_t rank = 16;
  bool rotate = true;
  PositionOptions position;

  HybridOptions() { position.kind = "rope"; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("heads", heads, "query heads H");
    visit("groups", groups, "key/value heads G; 0: as many as heads");
    visit("key", key, "K: width of a query and key; 0: D / H");
    visit("value", value, "V: width of a value; 0: D / H");
    visit("bias", bias, "q, k, v and out have biases");
    visit("qkv_bias", qkv_bias, "q, k and v have biases, out has none");
    visit("qk_norm", qk_norm, "RMS norm of q and k per head, before the rotation");
    visit("qk_norm_eps", qk_norm_eps, "its epsilon");
    visit("window", window, "how many of the last tokens softmax reads, the current one included");
    visit("sinks", sinks, "how many of the first tokens softmax reads as well");
    visit(
        "far",
        far,
        "what reads the tokens beyond",
        {"none", "linear", "taylor", "centres", "gla", "mlstm", "gated_deltanet", "kda"}
    );
    visit(
        "feature",
        feature,
        "linear: the feature map",
        {"elu1", "relu", "relu2", "exp", "hedgehog", "luna"}
    );
    visit("map", map, "linear: LUNA's map");
    visit("count", count, "centres: how many for each key head");
    visit("order", order, "centres and taylor: order of the series, even; none: 0 and 2");
    visit("rank", rank, "gla and kda: rank of the decay's projection");
    visit(
        "rotate", rotate, "recurrences that read all tokens: q and k are rotated as in the window"
    );
    visit("position", position, "where a token stands");
  }
};

class Hybrid : public Mixer {
 public:
  using Options = HybridOptions;
  Hybrid(int64_t D, const Options& options);
  Json options() const override { return to_json(o_); }
  bool stops_gradients() const override {
    return centres_.defined() && centres_.straight_through();
  }
  std::vector<std::string> voids() const override;
  void calibrate(const at::Tensor& x) override;  // start, measured on its own q, k and v of x
  void start(const HeadStatistics& s) override;

 protected:
  at::Tensor mix(const at::Tensor& x, Pass& pass) override;

 private:
  struct Projected {
    Inputs in;        // as the window reads them
    at::Tensor q, k;  // as a recurrence over all tokens reads them
  };
  // The two parts of a forward, each with its log-normaliser.
  struct Parts {
    Result near, far;
    Core near_core, far_core;
    at::Tensor written;  // (B|1,T): whether there is a far token
    at::Tensor
        far_tokens;     // (B|1,T): their number n_t where it is above 0, for recurrences over all
    at::Tensor factor;  // (B,T,H) or (H), of what the far op returned; undefined: 1
  };

  bool reads_left() const;
  bool decays_per_key() const { return o_.far == "gla" || o_.far == "kda"; }
  int64_t order() const { return o_.order.value_or(o_.far == "taylor" ? 2 : 0); }
  void make_far(int64_t D);
  void make_recurrence(int64_t D);
  Projected project(const at::Tensor& x, Pass& pass) const;
  Result attend(const Inputs& in, bool log_norm, Pass& pass) const;
  Parts with_left(const at::Tensor& x, const Inputs& in, Pass& pass) const;
  Result read_left(Inputs in, const at::Tensor& written, Pass& pass)
      const;  // with its log-normaliser
  Result read_series(Inputs in, const at::Tensor& written, Pass& pass) const;
  Parts with_all(const at::Tensor& x, const Projected& p, Pass& pass) const;
  Result read_all(const at::Tensor& x, const Projected& p, Pass& pass) const;
  at::Tensor factor(const at::Tensor& y) const;  // of what the recurrence returned, (B,T,H) or (H)
  void set_core(const Parts& parts, const Result& both, Pass& pass) const;
  void start_left(const HeadStatistics& s);
  void start_all(const HeadStatistics& s);
  class RecurrenceStart;

  const Options o_;
  const int64_t G_, K_, V_;
  Linear q_, k_, v_, out_;
  HeadNorm q_norm_, k_norm_;
  Position position_;
  // Left tokens.
  Features features_;
  LunaMap map_;
  CentreFeatures centres_;
  at::Tensor centre_;    // (G,K)
  at::Tensor far_bias_;  // (H)
  // All tokens.
  Linear decay_down_, decay_, beta_, input_gate_, mass_;
  at::Tensor far_scale_, far_mean_;  // (H), (H,V)
};

}  // namespace horner
