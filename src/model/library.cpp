// torch.ops.horner.model_* and block_forward: a model in pieces, stateless and composite as mixers/library.cpp.
//
//   x = model_begin(input);   x, delta = block_forward(layer, x, delta) for each layer;   logits = model_end(x, delta)
//
// Pieces, because each layer is a torch.nn.Module of its own in Python: FSDP gathers the parameters of one layer at a time.
// `options` is the JSON of ModelOptions.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <map>
#include <mutex>

#include "core/check.h"
#include "mixers/stateless.h"
#include "model/model.h"
#include "nn/initial_values.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;
using Maybe = std::optional<at::Tensor>;

struct ModelLayout {
  ModelOptions options;
  bool causal;
  Layout tensors;              // of the whole model, in the order of the constructors
  Layout ends;                 // those before and after the blocks
  std::vector<Layout> blocks;  // those of each block
};

ModelOptions parsed(const std::string& json) {
  ModelOptions options;
  from_json(options, parse_json(json, "model options"));
  return options;
}

const ModelLayout& model_layout(const std::string& json) {
  static std::mutex mutex;
  static std::map<std::string, ModelLayout> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(json);
  if (found != known.end()) return found->second;
  ModelLayout layout{parsed(json), true, {}, {}, {}};
  const ShapesOnly shapes;
  const Noted noted;
  Model model(layout.options);
  layout.causal = model.causal();
  layout.tensors = layout_of(model, noted);
  layout.blocks.resize(size_t(layout.options.layers));
  for (const TensorLayout& one : layout.tensors) {
    int64_t layer = -1;
    if (one.name.starts_with("layer_")) layer = std::stoll(one.name.substr(6));
    (layer < 0 ? layout.ends : layout.blocks[size_t(layer)]).push_back(one);
  }
  return known.emplace(json, std::move(layout)).first->second;
}

std::string describe_model(std::string options) {
  const ModelLayout& layout = model_layout(options);
  Json mixers = Json::array();
  for (int64_t l = 0; l < layout.options.layers; ++l)
    mixers.push_back(mixer_at(layout.options, l).text());
  return to_line(Json{
      {"options", to_json(layout.options)},
      {"causal", layout.causal},
      {"mixers", mixers},
      {"tensors", to_json(layout.tensors)}});
}

std::string model_settings() {
  Json list = Json::array();
  for (const Description& d : describe<ModelOptions>()) list.push_back(to_json(d));
  return to_line(list);
}

Tensors initial_model(std::string options, int64_t seed) {
  const Noted noted;
  const auto model = make_model(model_layout(options).options, uint64_t(seed));
  Tensors list;
  for (const auto& one : noted.tensors) list.push_back(one.tensor.detach());
  return list;
}

// What stands before and after the blocks, around these tensors.
std::shared_ptr<Model> ends_of(const ModelLayout& layout, at::TensorList tensors) {
  check_layout("model", layout.ends, tensors);
  const Lent lent(tensors);
  return std::make_shared<Model>(layout.options, false);
}

Context context_of(const Maybe& cu_seqlens, bool final_state) {
  Context context;
  if (cu_seqlens) context.cu_seqlens = *cu_seqlens;
  context.keep_state = final_state;
  return context;
}

// The second result is empty unless the model has learned positions: the tokens that each row has seen.
std::tuple<at::Tensor, Tensors> model_begin(
    std::string options,
    const at::Tensor& input,
    at::TensorList tensors,
    const Maybe& seen,
    const Maybe& cu_seqlens,
    bool train,
    bool final_state
) {
  const auto ends = ends_of(model_layout(options), tensors);
  ends->train(train);
  ModelState state;
  if (seen) state.seen = *seen;
  const Context context = context_of(cu_seqlens, final_state);
  const at::Tensor x = ends->begin(with_fixed_sizes(input), state, context);
  return {x, final_state && state.seen.defined() ? Tensors{state.seen} : Tensors()};
}

std::tuple<at::Tensor, at::Tensor, Tensors> block_forward(
    std::string options,
    int64_t layer,
    const at::Tensor& given,
    const Maybe& given_delta,
    at::TensorList tensors,
    std::optional<Tensors> before,
    const Maybe& cu_seqlens,
    std::string form,
    int64_t chunk,
    std::optional<int64_t> window,
    bool train,
    bool final_state
) {
  const ModelLayout& layout = model_layout(options);
  HORNER_CHECK(
      layer >= 0 && layer < layout.options.layers,
      "[model] layer must lie in 0 .. {}, got {}",
      layout.options.layers - 1,
      layer
  );
  check_layout("model", layout.blocks[size_t(layer)], tensors);
  const auto block = [&] {
    const Lent lent(tensors);
    return std::make_shared<Block>(mixer_at(layout.options, layer), layout.options);
  }();
  block->train(train);
  at::Tensor x = with_fixed_sizes(given);
  State state;
  if (before) state.parts = with_fixed_sizes(*before);
  Context context = context_of(cu_seqlens, final_state);
  context.form = std::move(form);
  context.chunk = chunk;
  context.window = window;
  const at::Tensor delta = given_delta ? with_fixed_sizes(*given_delta) : at::Tensor();
  const at::Tensor more = block->forward(x, delta, state, context);
  return {x, more, final_state ? state.parts : Tensors()};
}

at::Tensor model_end(
    std::string options,
    const at::Tensor& x,
    const Maybe& delta,
    at::TensorList tensors,
    const Maybe& lengths,
    bool logits
) {
  const auto ends = ends_of(model_layout(options), tensors);
  Context context;
  if (lengths) context.lengths = *lengths;
  const at::Tensor y =
      ends->end(with_fixed_sizes(x), delta ? with_fixed_sizes(*delta) : at::Tensor(), context);
  return logits ? ends->logits(y) : y;
}

at::Tensor model_loss(
    std::string options, const at::Tensor& hidden, const at::Tensor& targets, at::TensorList tensors
) {
  return ends_of(model_layout(options), tensors)
      ->loss(with_fixed_sizes(hidden), with_fixed_sizes(targets));
}

}  // namespace
}  // namespace horner

TORCH_LIBRARY_FRAGMENT(horner, m) {
  using namespace horner;
  m.def("model_settings() -> str", model_settings);
  m.def("model_layout(str options) -> str", describe_model);
  m.def("model_initial(str options, int seed) -> Tensor[]", initial_model);
  m.def(
      "model_begin(str options, Tensor input, Tensor[] tensors, Tensor? seen=None, "
      "Tensor? cu_seqlens=None, *, bool train=False, bool final_state=False) -> (Tensor, Tensor[])",
      model_begin
  );
  m.def(
      "block_forward(str options, int layer, Tensor x, Tensor? delta, Tensor[] tensors, "
      "Tensor[]? state=None, Tensor? cu_seqlens=None, *, str form=\"auto\", int chunk=64, "
      "int? window=None, bool train=False, bool final_state=False) -> (Tensor, Tensor, Tensor[])",
      block_forward
  );
  m.def(
      "model_end(str options, Tensor x, Tensor? delta, Tensor[] tensors, Tensor? lengths=None, *, "
      "bool logits=True) -> Tensor",
      model_end
  );
  m.def(
      "model_loss(str options, Tensor hidden, Tensor targets, Tensor[] tensors) -> Tensor",
      model_loss
  );
}

TORCH_LIBRARY_IMPL(horner, FuncTorchBatchedDecomposition, m) {
  m.impl("model_begin", horner::model_begin);
  m.impl("block_forward", horner::block_forward);
  m.impl("model_end", horner::model_end);
  m.impl("model_loss", horner::model_loss);
}
