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
#include "core/spec.h"
#include "nn/pass.h"

namespace horner {

struct HeadStatistics;  // of mixers/start.h

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
  // The equation with these settings; `listed` is that of the list's row.
  virtual std::string equation(std::string_view listed) const { return std::string(listed); }
  // Settings that have no effect beside the others, each with its reason.
  virtual std::vector<std::string> voids() const { return {}; }
  // Numbers that are measured rather than trained (key centring); none for most.
  virtual void calibrate(const at::Tensor&) {}
  // The same from what was measured of the softmax attention whose place it takes; none for most.
  virtual void start(const HeadStatistics&) {}

 protected:
  virtual at::Tensor mix(const at::Tensor& x, Pass& pass) = 0;  // (B,T,D) -> (B,T,D)

 private:
  const int64_t width_;
};

// A row of THE list.
struct MixerType {
  std::string_view name;
  std::string_view title;  // the name of its class in Python: horner.nn.GLA
  std::string_view paper;  // arXiv id
  std::string_view equation;
  std::string usual;                  // settings of a model of D = 1024, for tables
  std::vector<std::string> variants;  // settings "order=4,norm=sum" that tests and verify walk
  std::vector<std::string> refused;   // settings outside the paper's range
  std::shared_ptr<Mixer> (*make)(int64_t D, const Json& options);
  Json (*parse)(std::string_view text);  // "order=4,norm=sum" as the options that make takes
  std::vector<Description> (*describe)();
  std::string_view use;  // when one would take it, for its page
};

// THE list, in mixers.cpp.
const std::vector<MixerType>& mixers();
const MixerType& find_mixer(std::string_view name);
bool has_setting(const MixerType& type, std::string_view name);
std::shared_ptr<Mixer> make_mixer(const MixerSpec& spec, int64_t D);

// Bytes of the state after T tokens of one sequence, measured from its tensors.
int64_t state_bytes(const MixerType&, int64_t D, int64_t T, const Json& options);

}  // namespace horner
