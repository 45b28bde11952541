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

#include <torch/nn/module.h>

#include <memory>

#include "core/options.h"
#include "mixers/core.h"
#include "ops/op.h"

namespace horner {

class Mixer;

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
// order.
class Pass {
 public:
  Pass(const State& before, const Context& context, bool looks = false)
      : context_(context), before_(before), looks_(looks) {}

  const Context& context() const { return context_; }
  Core core;                             // the op call, for map and dsf
  bool looks() const { return looks_; }  // whether the core is wanted whole

  at::Tensor carried();  // the next part of the state; undefined where nothing has been seen
  void carry(const at::Tensor& part) { after_.parts.push_back(part); }
  bool first() const { return before_.empty(); }

  // How many tokens were seen before, (B); counts these T.
  at::Tensor position(const at::Tensor& x);
  // The running sum over time from the first token on, of (B,T,...).
  at::Tensor running_sum(const at::Tensor& x);

  // The op; its parts stand last in the state. q and k take the dtype of v.
  Result run(std::string_view op, Inputs in, Options options = {});
  // mLSTM: `linear` with log input gate i and log forget gate f, (B,T,G).
  Result run_gated(
      const Inputs& qkv, const at::Tensor& i, const at::Tensor& f, Options options = {}
  );
  // `power` with coefficients c (order + 1) that take gradients: one call per order on the same
  // state.
  Result run_learned(Inputs in, Options options, const at::Tensor& c);
  at::Tensor divide(const at::Tensor& o, const at::Tensor& eta);     // o / eta,     eta (B,T,H)
  at::Tensor add_skip(const at::Tensor& o, const at::Tensor& skip);  // o + skip v,  skip (B,T,H)

  State after() const { return after_; }

 private:
  State rest();
  Options with_form(Options options) const;

  const Context& context_;
  const State& before_;
  bool looks_;
  State after_;
  size_t next_ = 0;
};

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
  at::Tensor forward_packed(const at::Tensor& x, State& state, const Context& context);

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
