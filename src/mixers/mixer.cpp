#include "mixers/mixer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "core/check.h"
#include "nn/initial_values.h"
#include "nn/parameter.h"
#include "nn/part.h"

namespace horner {
namespace {

// Nothing is drawn: every weight is one number in memory.
std::shared_ptr<Mixer> make_unfilled(const MixerType& type, int64_t D, const Json& options) {
  const Unfilled no_draws;
  return type.make(D, options);
}

// All tensors are on meta, also those that are not drawn.
std::shared_ptr<Mixer> make_shapes(const MixerType& type, int64_t D, const Json& options) {
  std::vector<at::Tensor> shapes;
  {
    const ShapesOnly no_draws;
    const Noted noted;
    type.make(D, options);
    for (const Noted::One& one : noted.tensors)
      shapes.push_back(at::empty(one.tensor.sizes(), one.tensor.options().device(at::kMeta)));
  }
  const Lent lent(shapes);
  return type.make(D, options);
}

int64_t bytes_after(Mixer& mixer, int64_t T, at::Device device) {
  const auto after = [&](int64_t tokens) {
    State state;
    mixer.forward(at::zeros({1, tokens, mixer.width()}, device), state);
    return state.bytes();
  };
  const int64_t one = after(1);
  return T == 1 || after(2) == one ? one
                                   : after(T);  // a state that does not grow is as large as it gets
}

}  // namespace

at::Tensor Mixer::forward(const at::Tensor& x, State& state, const Context& context) {
  HORNER_CHECK(
      x.dim() == 3 && x.size(0) >= 1 && x.size(1) >= 1 && x.size(2) == width_,
      "[{}] x must be (B,T,D) = (B,T,{}), B and T at least 1, got {}",
      name(),
      width_,
      c10::str(x.sizes())
  );
  HORNER_CHECK(
      causal() || state.empty(),
      "[{}] both directions read a sequence whole: no state goes on",
      name()
  );
  const at::Tensor& cut = context.cu_seqlens;
  HORNER_CHECK(
      !cut.defined() || cut.is_cpu() || cut.device() == x.device(),
      "[{}] cu_seqlens must be on the CPU or on the device of x, {}, got {}",
      name(),
      x.device().str(),
      cut.device().str()
  );
  if (context.on_input) context.on_input(*this, x);
  Pass pass(state, context);
  const std::vector<int64_t>& starts = pass.starts();
  HORNER_CHECK(
      starts.empty() ||
          (x.size(0) == 1 && starts.size() >= 2 && starts.front() == 0 &&
           starts.back() == x.size(1) && std::is_sorted(starts.begin(), starts.end())),
      "[{}] a packed batch has B = 1 and cu_seqlens that rise from 0 to T = {}",
      name(),
      x.size(1)
  );
  const int64_t rows = starts.empty() ? x.size(0) : int64_t(starts.size()) - 1;
  HORNER_CHECK(
      state.empty() || state.parts[0].size(0) == rows,
      "[{}] the state has {} rows, there are {} sequences",
      name(),
      state.parts[0].size(0),
      rows
  );
  const Part part(parts::kGates);  // what no other part of the mixer names
  const at::Tensor y = mix(x, pass);
  if (causal() && context.keep_state) state = pass.after();
  return y;
}

Core Mixer::core(const at::Tensor& x) {
  const State nothing;
  const Context plain;
  Pass pass(nothing, plain, true);
  mix(x, pass);
  return pass.core;
}

at::Tensor Mixer::map(const at::Tensor& x) { return map_of(core(x)); }
System Mixer::dsf(const at::Tensor& x) { return system_of(core(x)); }

int64_t state_bytes(const MixerType& type, int64_t D, int64_t T, const Json& options) {
  const c10::NoGradGuard no_graph;
  try {
    return bytes_after(*make_shapes(type, D, options), T, at::kMeta);
  } catch (const c10::NotImplementedError&) {  // outside of Python torch knows fewer shapes
    return bytes_after(*make_unfilled(type, D, options), T, at::kCPU);
  }
}

}  // namespace horner
