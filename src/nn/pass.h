// One forward of a layer over time: the state before, the state after, and everything that mixes tokens.
#pragma once

#include <ATen/ops/cat.h>

#include <functional>
#include <map>
#include <memory>

#include "nn/core.h"

namespace horner {

class Mixer;

// What rope makes of the positions of one forward, by its settings: all layers stand at the same ones.
struct Rotations {
  std::map<std::vector<double>, std::pair<at::Tensor, at::Tensor>> made;  // cos, sin
  at::Tensor seen;                                                        // tokens after it
};

// Sequences of different lengths are packed, never padded. With padding, a token of both directions would read it, and
// a state would include it. A sequence may be empty; its row of the state then stays as it is.
struct Context {
  at::Tensor cu_seqlens;          // (n+1): a packed batch, B = 1; sequence j has row j of the state
  std::optional<int64_t> window;  // of the mixer `window`, for this forward only
  std::string form = "auto";
  int64_t chunk = 64;
  std::function<void(const Mixer&, const at::Tensor& x)> on_input;  // gets each mixer's input
  bool keep_state = true;  // false: the state after is not wanted, as in training
  at::Tensor lengths;      // (B): tokens of each row, later ones are padding; read by Model
  at::Tensor segments;     // (B,T): segment of each token, all 0 if undefined; read by Model
  bool recompute = false;  // blocks are computed again in backward; read by Model
  std::shared_ptr<Rotations> rotations = {};  // set by Model, for decoding
};

// One forward of a mixer. It reads the parts of the state before in order, and writes those of the state after in the
// same order. Everything that mixes tokens goes through it, which keeps the sequences of a packed batch apart.
class Pass {
 public:
  Pass(const State& before, const Context& context, bool wants_core = false);

  const Context& context() const { return context_; }
  const std::vector<int64_t>& starts() const { return starts_; }
  bool fresh() const { return before_.empty(); }   // nothing has been seen
  Core core;                                       // the op call, for map and dsf
  bool wants_core() const { return wants_core_; }  // for map and dsf, whole

  // y = f(x, part) for each sequence, x (B,T,...) -> y (B,T,...), also for T = 0. part is the next part of its state,
  // undefined at the start; f replaces it by the part after x.
  template <class F>
  at::Tensor over_time(const at::Tensor& x, F&& f);
  // f(x) for each whole sequence. A result (B,1,...) is used for all of its tokens.
  template <class F>
  at::Tensor each(const at::Tensor& x, F&& f);

  // The position of each token in its sequence, from 0.   (B,T); (1,T) if all rows start
  at::Tensor position(const at::Tensor& x);
  void skip_position(const at::Tensor& seen);  // only its part of the state moves on, to this
  at::Tensor last_part() const { return after_.parts.back(); }  // that was written
  // The number of tokens in the sequence of each token.   (B,T) or (B,1)
  at::Tensor length(const at::Tensor& x);
  // The running sum of (B,T,...) over time, from the first token of the sequence.
  at::Tensor running_sum(const at::Tensor& x);

  // Runs the op; its parts are the last of the state. q and k are converted to the dtype of v.
  Result run(std::string_view op, Inputs in, Options options = {});
  // As run, for an op that another op follows: its parts are the next of the state.
  Result run_first(std::string_view op, Inputs in, Options options = {});
  // What stood w tokens before each token of x (B,T,G,X), zeros where nothing did. It is read off the window of the
  // attention that runs next: `part` 0 of its state holds the last w keys, part 1 the values.
  at::Tensor delayed(const at::Tensor& x, int64_t w, size_t part) const;
  // mLSTM: `linear` with log input gate i and log forget gate f, (B,T,G).
  Result run_gated(Inputs qkv, const at::Tensor& i, const at::Tensor& f, Options options = {});
  // `power` with coefficients c (order + 1). If they take gradients, there is one call per order on the same state.
  Result run_learned(Inputs in, Options options, const at::Tensor& c);
  at::Tensor divide(const at::Tensor& o, const at::Tensor& eta);  // o / eta,     eta (B,T,H)
  // o + D u, which map and dsf see as o + skip v, skip (B,T,H) = D u / v.
  at::Tensor add_skip(const at::Tensor& o, const at::Tensor& Du, const at::Tensor& skip);

  State after() const { return after_; }

 private:
  State rest();
  Result run(const Op& op, Inputs in, const State& before, const Options& options);
  Options with_form(Options options) const;
  at::Tensor carried();
  void carry(const at::Tensor& part);

  const Context& context_;
  const State& before_;
  bool wants_core_;
  State after_;
  size_t next_ = 0;
  std::vector<int64_t> starts_;  // of a packed batch; empty: none
};

template <class F>
at::Tensor Pass::over_time(const at::Tensor& x, F&& f) {
  at::Tensor part = carried();
  if (starts_.empty()) {
    const at::Tensor y = f(x, part);
    carry(part);
    return y;
  }
  std::vector<at::Tensor> y, rows;
  for (size_t j = 0; j + 1 < starts_.size(); ++j) {
    at::Tensor row = part.defined() ? part.narrow(0, int64_t(j), 1) : at::Tensor();
    y.push_back(f(x.narrow(1, starts_[j], starts_[j + 1] - starts_[j]), row));
    rows.push_back(row);
  }
  carry(at::cat(rows, 0));
  return at::cat(y, 1);
}

template <class F>
at::Tensor Pass::each(const at::Tensor& x, F&& f) {
  if (starts_.empty()) return f(x);
  std::vector<at::Tensor> y;
  for (size_t j = 0; j + 1 < starts_.size(); ++j) {
    const int64_t T = starts_[j + 1] - starts_[j];
    if (T == 0) continue;
    y.push_back(f(x.narrow(1, starts_[j], T)));
    if (y.back().size(1) != T) {
      std::vector<int64_t> sizes = y.back().sizes().vec();
      sizes[1] = T;
      y.back() = y.back().expand(sizes);
    }
  }
  return at::cat(y, 1);
}

}  // namespace horner
