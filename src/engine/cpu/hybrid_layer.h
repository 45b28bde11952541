// A layer of `hybrid` or `window` in the CPU decoder: one token of one key/value head at a time. The equations are those of
// mixers/hybrid.h; a `window` layer is a hybrid with far = none.
//
//   state of a head   near: keys and values of the first s tokens and of the last w, as a page has them (pages.h)
//                     far:  S (F,V), z (F) and m in fp32
//
//   far                   F          a token writes                                        a query reads
//   centres               count      S_c += v, z_c += 1 at the centre nearest to k         e^{q.mu_c}
//   linear, taylor        features   S += phi(k)^T v, z += phi(k)                          phi(q)
//   gla                   K          S = diag(a) S + k^T v                                 q
//   mlstm                 K          the same, z beside it, both kept in range by m        q
//   gated_deltanet, kda   K          S = diag(a) S + b k^T (v - k diag(a) S)               q
//
// The size of the state does not depend on the number of tokens. Heads are independent, so threads share streams and heads.
#pragma once

#include <functional>

#include "core/huge_memory.h"
#include "engine/cpu/pages.h"
#include "mixers/hybrid.h"

namespace horner {

class HybridLayer {
 public:
  static std::string refuses(const HybridOptions& options);  // why it cannot run; empty: it can

  using Find = std::function<at::Tensor(const std::string&)>;  // in fp32; undefined: there is none
  HybridLayer(
      const HybridOptions& options, int64_t K, int64_t V, const Find& find, HugeArena& arena
  );

  // Its state begins here in that of a stream. Returns where it ends, in bytes. wide: keys and values are fp32, not halves.
  int64_t place(int64_t begin, bool wide);
  int64_t read_bytes(int64_t length) const;  // of the state, by a token after so many
  int64_t parameter_bytes() const;           // of what the far part reads beside the gates
  int64_t scratch() const;                   // numbers that `step` needs

  // The projections of x that gates and decays are made of, together: (rows,D), or undefined.
  at::Tensor gate_weight() const { return gate_weight_; }
  bool rotates_far() const { return o_.rotate; }

  struct Token {
    int64_t place;           // in its stream
    const float *q, *k, *v;  // (r,K) over sqrt(K), (K), (V)
    const float *far_q,
        *far_k;          // before the rotation, where the far part reads these; else as q and k
    const float* gates;  // gate_weight x
    float* o;            // (r,V)
  };
  void step(int64_t g, const Token& token, std::byte* state, float* scratch) const;

 private:
  // Of the queries of a head: o / l is the part's result, e^m l its sum of weights.
  struct Part {
    float *m, *l, *o;  // (r), (r), (r,padded V)
  };
  struct Head {  // what a step works on
    int64_t g;
    const Token& token;
    float *S, *z, *m;
    float* scratch;
    float* take(int64_t n) {
      float* taken = scratch;
      scratch += (n + 15) / 16 * 16;
      return taken;
    }
    Part take_part(int64_t r, int64_t V) { return {take(r), take(r), take(r * V)}; }
  };

  bool reads_left() const {
    return o_.far == "centres" || o_.far == "linear" || o_.far == "taylor";
  }
  bool decays_per_key() const { return o_.far == "gla" || o_.far == "kda"; }
  bool is_delta() const { return o_.far == "gated_deltanet" || o_.far == "kda"; }
  int64_t features() const;
  void read_shared(const Find& find, HugeArena& arena);
  void read_added(const Find& find);

  int64_t slot(int64_t place) const {
    return place < o_.sinks ? place : o_.sinks + (place - o_.sinks) % o_.window;
  }
  void attend_near(Head& head, const std::byte* near, const Part& part) const;
  void read_left(Head& head, const float* k, const float* v, const Part& part) const;
  void read_centres(Head& head, const float* k, const float* v, const Part& part) const;
  void map(bool key, int64_t head, const float* x, float scale, float* y) const;
  void monomials(const float* x, const float* weights, float* y) const;
  void read_all(Head& head, const Part& part) const;
  void decays(Head& head, float* a) const;
  float gate_number(const Head& head, int64_t row) const {
    return head.token.gates[row] + gate_bias_[size_t(row)];
  }
  template <class T>
  void put(std::byte* near, const Token& token) const;
  template <class T>
  void get(const std::byte* near, int64_t place, float* k, float* v) const;

  const HybridOptions o_;
  const int64_t G_, r_, K_, V_;
  const int64_t padded_V_;
  int64_t F_ = 0, padded_F_ = 0;  // 0: there is no far part
  int64_t page_slots_ = 0, pages_ = 0;
  bool wide_ = false;
  int64_t begin_ = 0, near_bytes_ = 0, head_bytes_ = 0;

  std::vector<int64_t> first_, last_;   // (r): every slot of the near part is visible
  std::vector<float> far_bias_;         // (H)
  std::shared_ptr<std::byte> centres_;  // (G,F/16,K,16)
  std::vector<float> half_squares_;  // (G,padded F): |mu|^2 / 2, infinite where there is no centre
  std::vector<float> centre_, term_weights_;  // taylor: (G,K), (padded F)
  std::vector<float> for_q_, for_k_;          // hedgehog: (H|G,padded K/16,K,16)
  std::vector<float> ones_;                   // (F)
  at::Tensor gate_weight_;  // log z / n (H), beta or input gates (G), decays (G | rank)
  std::vector<float> gate_bias_;
  std::vector<float> decay_, decay_bias_;    // per key: (G,padded K/16,rank,16), (G,padded K)
  std::vector<float> far_scale_, far_mean_;  // (H), (H,padded V)
};

}  // namespace horner
