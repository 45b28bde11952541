#include "engine/cpu/decoder.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/check.h"
#include "mixers/series.h"
#include "mixers/window.h"

namespace horner {
namespace {

// The first changed setting that is not among those that the decoder knows.
std::string unknown_setting(const Json& changed, const std::set<std::string>& known) {
  for (const auto& [name, value] : changed.items()) {
    if (known.count(name) == 0) return fmt::format("{} = {}", name, to_line(value));
  }
  return "";
}

std::string refuses_position(const PositionOptions& position) {
  if (position.kind == "selective_rope") return "position.kind = selective_rope";
  return "";
}

// A window is a hybrid with nothing beyond it.
HybridOptions hybrid_of(std::string_view name, const Json& settings) {
  HybridOptions y;
  if (name == "hybrid") {
    from_json(y, settings);
    return y;
  }
  WindowOptions o;
  from_json(o, settings);
  y.heads = o.heads, y.groups = o.groups, y.key = y.value = o.head;
  y.window = o.window, y.sinks = o.sinks, y.far = "none", y.position = o.position;
  return y;
}

std::string refuses_mixer(std::string_view name, const Json& settings) {
  if (name == "softmax") {
    SeriesOptions o;
    from_json(o, settings);
    const std::string unknown = unknown_setting(
        changed(o),
        {"heads",
         "groups",
         "key",
         "value",
         "bias",
         "qkv_bias",
         "qk_norm",
         "qk_norm_eps",
         "position"}
    );
    return unknown.empty() ? refuses_position(o.position) : unknown;
  }
  if (name == "window" && !settings.at("causal")) return "causal = false";
  if (name == "window" || name == "hybrid") return HybridLayer::refuses(hybrid_of(name, settings));
  return fmt::format("mixer {}", name);
}

}  // namespace

std::string CpuDecoder::refuses(Model& model) {
  const ModelOptions& o = model.options();
  const std::string unknown = unknown_setting(
      changed(o),
      {"pattern",
       "layers",
       "D",
       "vocabulary",
       "mlp_dim",
       "norm_eps",
       "init",
       "tied",
       "logit_cap",
       "dropout",
       "dropout_at"}
  );
  if (!unknown.empty()) return "the CPU decoder does not know " + unknown;
  for (int64_t l = 0; l < o.layers; ++l) {
    const std::string reason = refuses_mixer(mixer_at(o, l).name, model.block(l).mixer().options());
    if (!reason.empty()) return fmt::format("the CPU decoder does not know {}", reason);
  }
  return "";
}

CpuDecoder::Layer CpuDecoder::read_layer(
    Model& model, int64_t l, const Packer& packer, HugeArena& arena
) {
  const Json settings = model.block(l).mixer().options();
  const std::string name = fmt::format("layer_{}.", l);
  const auto parameters = model.named_parameters();
  const auto find = [&](const std::string& own) {
    const at::Tensor* found = parameters.find(name + own);
    return found != nullptr ? found->detach().to(at::kCPU, at::kFloat).contiguous() : at::Tensor();
  };
  Layer y;
  y.q = packer(name + "mixer.q_weight"), y.k = packer(name + "mixer.k_weight");
  y.v = packer(name + "mixer.v_weight"), y.out = packer(name + "mixer.out_weight");
  y.gate = packer(name + "mlp_gate_weight"), y.up = packer(name + "mlp_up_weight");
  y.down = packer(name + "mlp_down_weight");
  y.q_bias = find("mixer.q_bias"), y.k_bias = find("mixer.k_bias");
  y.v_bias = find("mixer.v_bias"), y.out_bias = find("mixer.out_bias");
  y.q_norm = find("mixer.q_norm_weight"), y.k_norm = find("mixer.k_norm_weight");
  y.norm = find("norm_weight"), y.mlp_norm = find("mlp_norm_weight");
  y.H = settings.at("heads");
  y.G = settings.at("groups") > 0 ? settings.at("groups").get<int64_t>() : y.H;
  y.K = y.k.out / y.G, y.V = y.v.out / y.G;
  y.qk_norm_eps = settings.value("qk_norm_eps", 1e-6);
  PositionOptions position;
  from_json(position, settings.at("position"));
  y.rotation = rotation_of(position, y.K);
  const std::string mixer = mixer_at(o_, l).name;
  if (mixer == "softmax") return y;
  const auto find_own = [&](const std::string& own) { return find("mixer." + own); };
  y.hybrid = std::make_shared<HybridLayer>(hybrid_of(mixer, settings), y.K, y.V, find_own, arena);
  const at::Tensor gates = y.hybrid->gate_weight();
  if (gates.defined()) y.far_gates = packed(gates, "fp32", arena);
  return y;
}

// The rotation with these frequencies; -1: there is none.
int64_t CpuDecoder::rotation_of(const PositionOptions& position, int64_t K) {
  if (position.kind != "rope") return -1;
  const std::string settings = fmt::format("{} {}", K, to_line(to_json(position)));
  size_t i = 0;
  while (i < rotations_.size() && rotations_[i].settings != settings) ++i;
  if (i == rotations_.size()) {
    const at::Tensor rates = rope_spectrum(K / 2, position).to(at::kDouble).contiguous();
    rotations_.push_back({settings, rates, {}, {}});
  }
  return int64_t(i);
}

CpuDecoder::CpuDecoder(Model& model, const std::string& weights, const GgufWeights& blocks)
    : o_(model.options()) {
  const std::string reason = refuses(model);
  HORNER_CHECK(reason.empty(), "{}", reason);
  const auto parameters = model.named_parameters();
  std::set<std::string> types;
  HugeArena arena;
  const Packer packer = [&](const std::string& name) {
    const auto own = blocks.find(name);
    if (weights == "auto" && own != blocks.end()) {
      types.insert(std::string(own->second.type->name));
      return packed(own->second, arena);
    }
    const at::Tensor& weight = parameters[name];
    const std::string plain = weight.scalar_type() == at::kBFloat16 ? "bf16" : "fp32";
    const bool outer = name == "embedding" || name == "head_weight";
    const std::string type = weights == "auto" ? plain : weights == "q4" && outer ? "q8" : weights;
    types.insert(type);
    return packed(weight, type, arena);
  };
  for (int64_t l = 0; l < o_.layers; ++l) {
    layers_.push_back(read_layer(model, l, packer, arena));
    const Layer& layer = layers_.back();
    shape_.add(layer.hybrid ? 0 : layer.G, layer.K, layer.V);
    queries_ = std::max(queries_, layer.H / layer.G);
  }
  norm_ = parameters["norm_weight"].detach().to(at::kCPU, at::kFloat).contiguous();
  embedding_ = packer("embedding");
  if (!o_.tied) head_ = packer("head_weight");
  shape_.wide = types == std::set<std::string>{"fp32"};
  for (const Layer& l : layers_)
    if (l.hybrid) shape_.state_bytes = l.hybrid->place(shape_.state_bytes, shape_.wide);
  name_ = fmt::format("{}, CPU, {}", fmt::join(types, " + "), name_of(best_target()));
  weight_bytes_ = head().bytes();
  for (const Layer& l : layers_) {
    for (const PackedWeight* w : {&l.q, &l.k, &l.v, &l.out, &l.gate, &l.up, &l.down, &l.far_gates})
      weight_bytes_ += w->bytes();
    if (l.hybrid) weight_bytes_ += l.hybrid->parameter_bytes();
  }
}

int64_t CpuDecoder::cache_bytes(int64_t length) const {
  int64_t bytes = 0;
  for (const Layer& l : layers_) {
    bytes += l.hybrid ? l.hybrid->read_bytes(length)
                      : length * l.G * (l.K + l.V) * (shape_.wide ? 4 : 2);
  }
  return bytes;
}

int64_t CpuDecoder::state_bytes(int64_t length) const {
  return (length + kPage - 1) / kPage * shape_.page_bytes() + shape_.state_bytes;
}

}  // namespace horner
