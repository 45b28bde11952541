#include "lab/convert/student.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>

#include "core/check.h"
#include "model/formats/checkpoint_folder.h"

namespace horner {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

Tensors by_name(const Model& model) {
  Tensors all;
  for (const auto& [name, tensor] : tensors_of(model)) all.emplace(name, tensor);
  return all;
}

Json settings_of(const MixerSpec& spec) {
  return find_mixer(spec.name).parse(spec.settings_text());
}

}  // namespace

bool is_replaceable(const MixerSpec& layer) {
  if (layer.name != "softmax") return false;
  const Json settings = settings_of(layer);
  return settings.value("causal", true) && !layer.find("clamp") &&
         settings.value("decay", "none") == "none" && settings.value("norm", "sum") == "sum" &&
         settings.value("centre", "none") == "none";
}

MixerSpec target_spec(const MixerSpec& to, const MixerSpec& layer) {
  const MixerType& type = find_mixer(to.name);
  MixerSpec spec = to;
  for (const TypeSpec::Setting& setting : layer.settings) {
    // `window` has one width for keys and values.
    const bool one_width = setting.name == "key" && has_setting(type, "head");
    const std::string name = one_width ? "head" : setting.name;
    if (has_setting(type, name) && !spec.find(name)) spec.settings.push_back({name, setting.value});
  }
  return spec;
}

ModelOptions student_options(const ModelOptions& teacher, const MixerSpec& to, const Kept& kept) {
  ModelOptions o = teacher;
  o.pattern.clear();
  for (int64_t l = 0; l < teacher.layers; ++l) {
    const MixerSpec own = mixer_at(teacher, l);
    o.pattern.push_back(kept[size_t(l)] ? own.text() : target_spec(to, own).text());
  }
  return o;
}

std::shared_ptr<Model> shared_model(
    const ModelOptions& options, const std::vector<const Model*>& sources
) {
  const c10::NoGradGuard no_graph;
  const auto model = std::make_shared<Model>(options);
  std::vector<Tensors> theirs;
  for (const Model* source : sources) theirs.push_back(by_name(*source));
  Tensors unused = theirs.back();
  for (auto& [name, tensor] : tensors_of(*model)) {
    for (const Tensors& source : theirs) {
      auto found = source.find(name);
      if (found == source.end() && name == "head_weight") found = source.find("embedding");
      if (found == source.end() || found->second.sizes() != tensor.sizes()) continue;
      tensor.set_data(found->second);
      unused.erase(name);
      break;
    }
  }
  for (const auto& [name, tensor] : unused)
    throw UsageError(
        "{} {} of the trained model has no place in {}: another mixer is needed",
        name,
        c10::str(tensor.sizes()),
        options.pattern.front()
    );
  model->eval();
  return model;
}

void each_mixer_input(
    Model& model,
    const at::Tensor& input,
    const std::function<void(int64_t layer, const at::Tensor& x)>& f
) {
  const c10::NoGradGuard no_graph;
  at::Tensor in;
  Context context;
  context.keep_state = false;
  context.on_input = [&](const Mixer&, const at::Tensor& x) { in = x; };
  ModelState state;
  at::Tensor x = model.begin(input, state, context), delta;
  for (int64_t l = 0; l < model.options().layers; ++l) {
    State none;
    delta = model.block(l).forward(x, delta, none, context);
    f(l, in);
  }
}

void calibrate_on(
    Model& teacher,
    Model& student,
    const Kept& kept,
    const at::Tensor& input,
    const std::function<void(int64_t)>& tell
) {
  each_mixer_input(teacher, input, [&](int64_t layer, const at::Tensor& x) {
    if (tell) tell(layer);
    if (!kept[size_t(layer)]) student.block(layer).mixer().calibrate(x);
  });
}

// The matrix `out` is replaced by the identity for one forward.
at::Tensor heads_of(Mixer& mixer, const at::Tensor& x, int64_t H) {
  const c10::NoGradGuard no_graph;
  auto parameters = mixer.named_parameters();
  at::Tensor* out = parameters.find("out_weight");
  at::Tensor* bias = parameters.find("out_bias");
  HORNER_CHECK(out != nullptr, "[{}] has no matrix after its heads", mixer.name());
  const at::Tensor before = out->data();
  const at::Tensor bias_before = bias != nullptr ? bias->data() : at::Tensor();
  const int64_t width = before.size(1);
  out->set_data(at::eye(width, before.options()));
  if (bias != nullptr) bias->set_data(at::zeros({width}, before.options()));
  State none;
  Context context;
  context.keep_state = false;
  const at::Tensor o = mixer.forward(x, none, context);
  out->set_data(before);
  if (bias != nullptr) bias->set_data(bias_before);
  return o.view({o.size(0), o.size(1), H, width / H});
}

}  // namespace horner
