// A window of exact softmax attention, and a recurrence for the tokens beyond it: what a trained softmax model is converted to.
//
//   near   softmax over the last w tokens and the first s (sinks)               as `window`
//   far    the tokens that left the window and are no sinks, s <= u <= t - w, or all tokens; what reads them:
//
//   far              reads        joined                     recurrence                                       (arXiv)
//   linear           left tokens  under one normaliser       phi(q).phi(k), phi of features.h or luna.h       2410.10254
//   taylor           left tokens  under one normaliser       e^{q.mu} p_N(q.(k - mu)), mu `centre`
//   centres          left tokens  under one normaliser       features/centres.h                               2309.16354
//   gla              all          o += c gate far/rms(far)   S_t = diag(a_t) S + k^T v                        2312.06635
//   mlstm            all          o += c gate far/rms(far)   C_t = a_t C + e^{i_t} k^T v, over max(|q.n|, 1)  2405.04517
//   gated_deltanet   all          o += c gate far            S_t = a_t (I - b_t k^T k) S + b_t k^T v          2412.06464
//   kda              all          o += c gate far            the same with a decay per key channel            2510.26692
//   none             nothing                                                                              the window alone
//
//   one normaliser   o_t = (sum_near e^{x_tu} v_u + e^b sum_far w_tu v_u) / (sum_near e^{x_tu} + e^b sum_far w_tu)
//                    b = far_bias of each head, 0 at first. No token is counted twice: the far op gets k and v of token
//                    t - w, which it reads off the window's own state.
//   added            q and k have length 1;  a = e^{-softplus(x Wd + bd)} for each key head or key channel (rank `rank`);
//                    b = sigmoid(x Wb + bb);  i = 15 tanh((x Wi + bi)/15);  gate = sigmoid(x Wg + bg), 0.05 at first;
//                    c = far_scale of each head. The far op reads all tokens: with no normaliser to share, a token inside the
//                    window is no double count, and the recurrence needs no delayed copy of the gates.
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
    visit("rotate", rotate, "far parts that are added: q and k are rotated as in the window");
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
    at::Tensor q, k;  // as an added far part reads them
  };
  // The two parts of a forward: o = near + far, each times its share (B,T,H).
  struct Parts {
    Result near, far;
    Core near_core, far_core;
    at::Tensor written;  // (B|1,T): whether the far op gets a token here; undefined: always
  };

  bool shares_normaliser() const;
  bool decays_per_key() const { return o_.far == "gla" || o_.far == "kda"; }
  int64_t order() const { return o_.order.value_or(o_.far == "taylor" ? 2 : 0); }
  void make_far(int64_t D);
  void make_added(int64_t D);
  Projected project(const at::Tensor& x, Pass& pass) const;
  Result attend(const Inputs& in, bool log_norm, Pass& pass) const;
  Parts shared(const at::Tensor& x, const Inputs& in, Pass& pass) const;
  Result read_left(Inputs in, const at::Tensor& written, Pass& pass)
      const;  // with its log-normaliser
  Result read_series(Inputs in, const at::Tensor& written, Pass& pass) const;
  Result read_all(const at::Tensor& x, Inputs in, Pass& pass) const;
  Parts added(const at::Tensor& x, const Projected& p, Pass& pass) const;
  at::Tensor gate(const at::Tensor& x, const at::Tensor& far) const;  // (B,T,H), without far_scale
  void set_core(const Parts& parts, const at::Tensor& near, const at::Tensor& far, Pass& pass)
      const;
  void start_shared(const HeadStatistics& s);
  void start_added(const HeadStatistics& s);

  const Options o_;
  const int64_t G_, K_, V_;
  Linear q_, k_, v_, out_;
  HeadNorm q_norm_, k_norm_;
  Position position_;
  // Under one normaliser.
  Features features_;
  LunaMap map_;
  CentreFeatures centres_;
  at::Tensor centre_;    // (G,K)
  at::Tensor far_bias_;  // (H)
  // Added.
  Linear decay_down_, decay_, beta_, input_gate_, gate_;
  at::Tensor far_scale_;  // (H)
};

}  // namespace horner
