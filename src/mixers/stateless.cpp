#include "mixers/stateless.h"

#include <ATen/autocast_mode.h>

#include <map>
#include <mutex>

#include "core/check.h"
#include "core/initial.h"
#include "nn/initial_values.h"

namespace horner {

Layout layout_of(const torch::nn::Module& module, const Noted& noted) {
  std::map<const c10::TensorImpl*, std::string> names;
  for (const auto& entry : module.named_parameters())
    names[entry.value().unsafeGetTensorImpl()] = entry.key();
  for (const auto& entry : module.named_buffers())
    names[entry.value().unsafeGetTensorImpl()] = entry.key();
  Layout list;
  for (const auto& [x, trained] : noted.tensors)
    list.push_back({names.at(x.unsafeGetTensorImpl()), x.sizes().vec(), x.scalar_type(), trained});
  return list;
}

void check_layout(std::string_view what, const Layout& layout, at::TensorList tensors) {
  HORNER_CHECK(
      layout.size() == tensors.size(),
      "[{}] has {} tensors, got {}",
      what,
      layout.size(),
      tensors.size()
  );
  for (size_t i = 0; i < layout.size(); ++i) {
    HORNER_CHECK(
        tensors[i].sym_sizes() == c10::fromIntArrayRefSlow(layout[i].sizes),
        "[{}] {} must be ({}), got ({})",
        what,
        layout[i].name,
        fmt::join(layout[i].sizes, ","),
        c10::str(c10::Join(",", tensors[i].sym_sizes()))
    );
  }
}

Json to_json(const Layout& layout) {
  Json list = Json::array();
  for (const auto& [name, sizes, type, trained] : layout)
    list.push_back(
        {{"name", name}, {"sizes", sizes}, {"double", type == at::kDouble}, {"trained", trained}}
    );
  return list;
}

Json to_json(const Description& d) {
  return {
      {"name", d.name},
      {"type", d.type},
      {"initial", d.initial},
      {"help", d.help},
      {"choices", d.choices}};
}

at::Tensor with_fixed_sizes(const at::Tensor& x) {
  if (!x.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return x;
  std::vector<int64_t> sizes;
  for (const c10::SymInt& size : x.sym_sizes()) sizes.push_back(size.guard_int(__FILE__, __LINE__));
  // A view of the same shape would keep the symbols.
  return x.flatten().unsqueeze(1).reshape(sizes);
}

std::vector<at::Tensor> with_fixed_sizes(at::TensorList list) {
  std::vector<at::Tensor> fixed;
  for (const at::Tensor& x : list) fixed.push_back(with_fixed_sizes(x));
  return fixed;
}

const MixerLayout& mixer_layout(const std::string& spec, int64_t D) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int64_t>, MixerLayout> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find({spec, D});
  if (found != known.end()) return found->second;
  const TypeSpec parsed = TypeSpec::parse(spec);
  const MixerType& type = find_mixer(parsed.name);
  const Json options = type.parse(parsed.settings_text());
  const ShapesOnly shapes;
  const Noted noted;
  const auto mixer = type.make(D, options);
  MixerLayout layout{&type, options, mixer->causal(), layout_of(*mixer, noted)};
  return known.emplace(std::pair{spec, D}, std::move(layout)).first->second;
}

std::vector<at::Tensor> initial_tensors(const std::string& spec, int64_t D, uint64_t seed) {
  const MixerLayout& layout = mixer_layout(spec, D);
  const Initial all(seed);
  const Noted noted;
  const auto mixer = layout.type->make(D, layout.options);
  std::vector<at::Tensor> list;
  for (const auto& one : noted.tensors) list.push_back(one.tensor.detach());
  return list;
}

void check_input(const MixerLayout& layout, const at::Tensor& x, at::TensorList tensors) {
  HORNER_CHECK(
      at::isFloatingType(x.scalar_type()),
      "[{}] x must be floating point, got {}",
      layout.type->name,
      c10::str(x.scalar_type())
  );
  std::optional<at::ScalarType> own;  // of a tensor that follows the layer's dtype
  const at::DeviceType device = x.device().type();
  bool fits =
      at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device);
  for (size_t i = 0; i < tensors.size(); ++i) {
    HORNER_CHECK(
        tensors[i].device() == x.device(),
        "[{}] x is on {}, {} on {}: move one of them by .to(device)",
        layout.type->name,
        x.device().str(),
        layout.tensors[i].name,
        tensors[i].device().str()
    );
    if (layout.tensors[i].type == at::kDouble) continue;  // whatever the layer's dtype
    own = own.value_or(tensors[i].scalar_type());
    fits = fits || tensors[i].scalar_type() == x.scalar_type();
  }
  HORNER_CHECK(
      fits || !own,
      "[{}] x must have the dtype of the layer, {}, got {}",
      layout.type->name,
      c10::str(own.value_or(at::kFloat)),
      c10::str(x.scalar_type())
  );
}

std::shared_ptr<Mixer> mixer_of(const std::string& spec, int64_t D, at::TensorList tensors) {
  const MixerLayout& layout = mixer_layout(spec, D);
  check_layout(layout.type->name, layout.tensors, tensors);
  const Lent lent(tensors);
  return layout.type->make(D, layout.options);
}

}  // namespace horner
