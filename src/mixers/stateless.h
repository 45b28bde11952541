// A mixer whose tensors come with each call: what torch.ops.horner.mixer_* and Python's layers stand on.
//
// The mixer is built around the given tensors (nn/parameter.h), runs, and is gone. Names, shapes and settings of (spec, D)
// are worked out once.
#pragma once

#include "mixers/mixer.h"
#include "nn/parameter.h"

namespace horner {

// A tensor of a layer, as its owner outside has to make it.
struct TensorLayout {
  std::string name;  // as in a checkpoint: "q_weight", "layer_0.mixer.q_weight"
  std::vector<int64_t> sizes;
  at::ScalarType type;
  bool trained;  // a parameter; else a buffer
};
using Layout = std::vector<TensorLayout>;  // in the order in which the layer takes them

// Of a module that was built while `noted` lived.
Layout layout_of(const torch::nn::Module& module, const Noted& noted);
// UsageError that begins with [what] unless there is one tensor of the right shape for each row.
void check_layout(std::string_view what, const Layout& layout, at::TensorList tensors);
Json to_json(const Layout& layout);
Json to_json(const Description& setting);
// A traced graph gets a tensor whose sizes are numbers: a graph of a layer holds for one shape.
at::Tensor with_fixed_sizes(const at::Tensor& x);
std::vector<at::Tensor> with_fixed_sizes(at::TensorList list);

struct MixerLayout {
  const MixerType* type;
  Json options;
  bool causal;
  Layout tensors;
};
const MixerLayout& mixer_layout(const std::string& spec, int64_t D);
std::vector<at::Tensor> initial_tensors(const std::string& spec, int64_t D, uint64_t seed);
// UsageError unless x has the device and the dtype of the layer; under autocast it may have any floating-point dtype.
void check_input(const MixerLayout& layout, const at::Tensor& x, at::TensorList tensors);
// The mixer around these tensors, for one call.
std::shared_ptr<Mixer> mixer_of(const std::string& spec, int64_t D, at::TensorList tensors);

}  // namespace horner
