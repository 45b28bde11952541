// torch.ops.horner.mixer_*: every mixer of THE list, stateless. A spec says which: "gla:heads=8".
//
// They are composite: torch sees the ATen operations and the horner ops inside, so autograd, autocast, torch.compile,
// torch.export, meta tensors and FSDP need no rule of their own.
#include <torch/library.h>

#include "core/check.h"
#include "mixers/stateless.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;

// The mixer around these tensors, for a call with this x.
std::shared_ptr<Mixer> mixer_for(
    const std::string& spec, const at::Tensor& x, at::TensorList tensors
) {
  HORNER_CHECK(
      x.dim() == 3, "[{}] x must be (B,T,D), got {} dimensions", TypeSpec::parse(spec).name, x.dim()
  );
  const int64_t D = x.sym_size(2).guard_int(__FILE__, __LINE__);
  auto mixer = mixer_of(spec, D, tensors);
  check_input(mixer_layout(spec, D), x, tensors);
  return mixer;
}

Json settings_of(const MixerType& type) {
  Json list = Json::array();
  for (const Description& d : type.describe()) list.push_back(to_json(d));
  return list;
}

// THE list, as JSON.
std::string list_mixers() {
  Json list = Json::array();
  for (const MixerType& type : mixers())
    list.push_back(
        {{"name", type.name},
         {"title", type.title},
         {"paper", type.paper},
         {"equation", type.equation},
         {"variants", type.variants},
         {"settings", settings_of(type)}}
    );
  return to_line(list);
}

std::string describe_mixer(std::string spec, int64_t D) {
  const MixerLayout& layout = mixer_layout(spec, D);
  return to_line(Json{
      {"name", layout.type->name},
      {"options", layout.options},
      {"causal", layout.causal},
      {"tensors", to_json(layout.tensors)}});
}

Tensors initial_mixer(std::string spec, int64_t D, int64_t seed) {
  return initial_tensors(spec, D, uint64_t(seed));
}

std::tuple<at::Tensor, Tensors> mixer_forward(
    std::string spec,
    const at::Tensor& given,
    at::TensorList tensors,
    std::optional<Tensors> before,
    const std::optional<at::Tensor>& cu_seqlens,
    std::string form,
    int64_t chunk,
    std::optional<int64_t> window,
    bool final_state
) {
  const auto mixer = mixer_for(spec, given, tensors);
  HORNER_CHECK(
      !window || std::string_view(mixer->name()) == "window",
      "[{}] has no window to change for a call",
      mixer->name()
  );
  const at::Tensor x = with_fixed_sizes(given);
  State state;
  if (before) state.parts = with_fixed_sizes(*before);
  Context context;
  if (cu_seqlens) context.cu_seqlens = *cu_seqlens;
  context.form = std::move(form);
  context.chunk = chunk;
  context.window = window;
  context.keep_state = final_state;
  const at::Tensor y = mixer->forward(x, state, context);
  return {y, final_state ? state.parts : Tensors()};
}

at::Tensor mixer_map(std::string spec, const at::Tensor& given, at::TensorList tensors) {
  const at::Tensor x = with_fixed_sizes(given);
  return mixer_for(spec, given, tensors)->map(x);
}

}  // namespace
}  // namespace horner

TORCH_LIBRARY_FRAGMENT(horner, m) {
  m.def("mixers() -> str", horner::list_mixers);
  m.def("mixer_layout(str spec, int D) -> str", horner::describe_mixer);
  m.def("mixer_initial(str spec, int D, int seed) -> Tensor[]", horner::initial_mixer);
  m.def(
      "mixer_forward(str spec, Tensor x, Tensor[] tensors, Tensor[]? state=None, "
      "Tensor? cu_seqlens=None, *, str form=\"auto\", int chunk=64, int? window=None, "
      "bool final_state=False) -> (Tensor, Tensor[])",
      horner::mixer_forward
  );
  m.def("mixer_map(str spec, Tensor x, Tensor[] tensors) -> Tensor", horner::mixer_map);
}

// torch.func.vmap, too, goes through to what is inside.
TORCH_LIBRARY_IMPL(horner, FuncTorchBatchedDecomposition, m) {
  m.impl("mixer_forward", horner::mixer_forward);
  m.impl("mixer_map", horner::mixer_map);
}
