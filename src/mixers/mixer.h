// A mixer: a layer (B,T,D) -> (B,T,D), projections, position, features, gates and a normaliser
// around one op.
//
//   forward  any T >= 1, whole or in pieces: the state carries what the next piece needs
//   map      (B,H,T,T): the weight with which token t reads the value of token s
//   dsf      the dynamical-systems form h_t = Lambda_t h_{t-1} + B_t u_t, y_t = C_t h_t + D_t u_t
//
// No mixer writes a recurrence (`conv` has none to write): `mix` prepares the inputs of an op, has the Pass run it, and
// finishes its output. Map and dsf are read off that one call, so that they cannot differ from what
// forward computes.
#pragma once

#include <ATen/ops/cat.h>
#include <torch/nn/module.h>

#include <memory>

#include "core/options.h"
#include "mixers/core.h"
#include "ops/op.h"

namespace horner {

class Mixer;

// Sequences of different lengths are packed, never padded: in both directions a token would read the
// padding, and a state would go on from it. A sequence may be empty; its row of the state stays.
struct Context {
  at::Tensor cu_seqlens;          // (n+1): a packed batch, B = 1; sequence j has row j of the state
  std::optional<int64_t> window;  // of `window`, for this forward alone
  std::string form = "auto";
  int64_t chunk = 64;
  std::function<void(const Mixer&, const at::Tensor& x)> look;  // sees what each mixer gets
  bool keep_state = true;  // false: the state after is not wanted, as in training
  at::Tensor lengths;      // (B): tokens of each row, later ones are padding; read by Model
  bool recompute = false;  // blocks are computed again in backward; read by Model
};

// One forward of a mixer: the state before, read in order, the state after, written in the same
// order. Whatever mixes tokens goes through it, so that each sequence of a packed batch is alone.
class Pass {
 public:
  Pass(const State& before, const Context& context, bool looks = false);

  const Context& context() const { return context_; }
  const std::vector<int64_t>& starts() const { return starts_; }
  bool fresh() const { return before_.empty(); }  // nothing has been seen
  Core core;                                      // the op call, for map and dsf
  bool looks() const { return looks_; }           // whether the core is wanted whole

  // y = f(x, part) for each sequence x (B,T,...) -> y (B,T,...), T = 0 too: part is its next part of
  // the state, undefined where nothing has been seen, and becomes what the next piece needs.
  template <class F>
  at::Tensor over_time(const at::Tensor& x, F&& f);
  // f(x) for each sequence, which is read whole: a result (B,1,...) holds for all of its tokens.
  template <class F>
  at::Tensor each(const at::Tensor& x, F&& f);

  // How many tokens came before each, from 0; counts these.   (B,T), (1,T) where all rows start
  at::Tensor position(const at::Tensor& x);
  // How many there are in its sequence.   (B,T) or (B,1)
  at::Tensor length(const at::Tensor& x);
  // The running sum over time from the first token on, of (B,T,...).
  at::Tensor running_sum(const at::Tensor& x);

  // The op; its parts stand last in the state. q and k take the dtype of v.
  Result run(std::string_view op, Inputs in, Options options = {});
  // mLSTM: `linear` with log input gate i and log forget gate f, (B,T,G).
  Result run_gated(Inputs qkv, const at::Tensor& i, const at::Tensor& f, Options options = {});
  // `power` with coefficients c (order + 1): where they take gradients, one call per order on the
  // same state.
  Result run_learned(Inputs in, Options options, const at::Tensor& c);
  at::Tensor divide(const at::Tensor& o, const at::Tensor& eta);  // o / eta,     eta (B,T,H)
  // o + D u, which map and dsf see as o + skip v, skip (B,T,H) = D u / v.
  at::Tensor add_skip(const at::Tensor& o, const at::Tensor& Du, const at::Tensor& skip);

  State after() const { return after_; }

 private:
  State rest();
  Options with_form(Options options) const;
  at::Tensor carried();
  void carry(const at::Tensor& part);

  const Context& context_;
  const State& before_;
  bool looks_;
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

class Mixer : public torch::nn::Module {
 public:
  Mixer(std::string name, int64_t D) : torch::nn::Module(std::move(name)), width_(D) {}

  at::Tensor forward(const at::Tensor& x, State& state, const Context& context = {});
  at::Tensor map(const at::Tensor& x);
  System dsf(const at::Tensor& x);
  Core core(const at::Tensor& x);  // the op call of a forward from the beginning

  int64_t width() const { return width_; }  // D
  virtual Json options() const = 0;
  virtual bool causal() const { return true; }
  virtual bool stops_gradients() const { return false; }  // on purpose: norm = detach
  // Settings that have no effect beside the others, each with its reason.
  virtual std::vector<std::string> voids() const { return {}; }
  // Numbers that are measured rather than trained (key centring); none for most.
  virtual void calibrate(const at::Tensor&) {}

 protected:
  virtual at::Tensor mix(const at::Tensor& x, Pass& pass) = 0;  // (B,T,D) -> (B,T,D)

 private:
  const int64_t width_;
};

// A row of THE list.
struct MixerType {
  std::string_view name;
  std::string_view paper;  // arXiv id
  std::string_view equation;
  std::string usual;                  // settings of a model of D = 1024, for tables
  std::vector<std::string> variants;  // settings "order=4,norm=sum" that tests and verify walk
  std::vector<std::string> refused;   // settings outside the paper's range
  std::shared_ptr<Mixer> (*make)(int64_t D, const Json& options);
  Json (*parse)(std::string_view text);  // "order=4,norm=sum" as the options that make takes
  std::vector<Description> (*describe)();
};

// THE list, in mixers.cpp.
const std::vector<MixerType>& mixers();
const MixerType& find_mixer(std::string_view name);
std::shared_ptr<Mixer> make_mixer(std::string_view name, int64_t D, std::string_view options = "");

// Bytes of the state after T tokens of one sequence, measured from its tensors.
int64_t state_bytes(const MixerType&, int64_t D, int64_t T, const Json& options);

}  // namespace horner
