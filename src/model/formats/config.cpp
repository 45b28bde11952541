#include "model/formats/config.h"

#include <cmath>
#include <cstdlib>
#include <optional>

#include "core/check.h"
#include "core/json_builder.h"

namespace horner {
namespace {

// The values of a config.json, with errors that name the key.
class Config {
 public:
  Config(const Json& json, std::string source) : json_(json), source_(std::move(source)) {
    if (!json.is_object()) throw DataError("{}: must be an object", source_);
  }

  const Json* find(const char* key) const {  // null: absent or null
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const char* key) const { return json_.contains(key); }  // null too
  int64_t integer(const char* key, std::optional<int64_t> otherwise = {}) const {
    const Json* value = find(key);
    if (!value && otherwise) return *otherwise;
    if (!value) throw DataError("{}: has no {}", source_, key);
    const bool fits = value->is_number_integer() && *value >= 0 && *value <= int64_t{1} << 50;
    if (!fits) throw DataError("{}: {} must be an integer, got {}", source_, key, to_line(*value));
    return value->get<int64_t>();
  }
  double number(const char* key, double otherwise) const {
    const Json* value = find(key);
    if (value && !value->is_number())
      throw DataError("{}: {} must be a number, got {}", source_, key, to_line(*value));
    return value ? value->get<double>() : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    const Json* value = find(key);
    if (value && !value->is_boolean())
      throw DataError("{}: {} must be true or false, got {}", source_, key, to_line(*value));
    return value ? value->get<bool>() : otherwise;
  }
  std::string text(const char* key, const std::string& otherwise) const {
    const Json* value = find(key);
    if (value && !value->is_string())
      throw DataError("{}: {} must be a string, got {}", source_, key, to_line(*value));
    return value ? value->get<std::string>() : otherwise;
  }
  // Refuses a setting that would change the result.
  void refuse(const char* key, bool when) const {
    if (!when) return;
    throw DataError("{}: {} = {} is not supported", source_, key, to_line(json_[key]));
  }
  const std::string& source() const { return source_; }

 private:
  const Json& json_;
  std::string source_;
};

// Frequencies of rope: rope_theta and rope_scaling, or since version 5 both in rope_parameters.
void read_rope(const Config& config, ModelConfig& c) {
  const Json* all = config.find("rope_parameters");
  const Json* scaling = all ? all : config.find("rope_scaling");
  c.rope_base = config.number("rope_theta", 10000);
  if (!scaling) return;
  const Config rope(*scaling, config.source() + ": rope");
  c.rope_base = rope.number("rope_theta", c.rope_base);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return;
  if (type != "linear" && type != "llama3")
    throw DataError(
        "{}: rope scaling '{}' is not supported; default, linear and llama3 are",
        config.source(),
        type.substr(0, 100)
    );
  c.scaling = type;
  c.scaling_factor = rope.number("factor", 1);
  c.scaling_low = rope.number("low_freq_factor", 1);
  c.scaling_high = rope.number("high_freq_factor", 4);
  c.scaling_length = rope.integer("original_max_position_embeddings", c.context);
}

void read_llama(const Config& config, ModelConfig& c) {
  c.layers = config.integer("num_hidden_layers");
  c.D = config.integer("hidden_size");
  c.heads = config.integer("num_attention_heads");
  c.groups = config.integer("num_key_value_heads", c.heads);
  c.head = config.integer("head_dim", c.heads > 0 ? c.D / c.heads : 0);
  c.mlp_dim = config.integer("intermediate_size");
  c.vocabulary = config.integer("vocab_size");
  c.context = config.integer("max_position_embeddings", 0);
  c.norm_eps = config.number("rms_norm_eps", 1e-6);
  c.tied = config.flag("tie_word_embeddings", false);
  c.mlp = "swiglu";
  config.refuse("hidden_act", config.text("hidden_act", "silu") != "silu");
  read_rope(config, c);
  const bool bias = config.flag("attention_bias", false);
  if (c.architecture == "llama" || c.architecture == "qwen3") c.qkv_bias = c.out_bias = bias;
  if (c.architecture == "llama") c.mlp_bias = config.flag("mlp_bias", false);
  if (c.architecture == "mistral")  // null: none; transformers' default where it is not named
    c.window = config.has("sliding_window") ? config.integer("sliding_window", 0) : 4096;
  if (c.architecture == "qwen2") c.qkv_bias = true;
  c.qk_norm = c.architecture == "qwen3";
  if (c.architecture == "qwen2" || c.architecture == "qwen3")
    config.refuse("use_sliding_window", config.flag("use_sliding_window", false));
}

void read_gpt2(const Config& config, ModelConfig& c) {
  c.layers = config.integer("n_layer");
  c.D = config.integer("n_embd");
  c.groups = c.heads = config.integer("n_head");
  c.head = c.heads > 0 ? c.D / c.heads : 0;
  c.mlp_dim = config.integer("n_inner", 4 * c.D);
  c.vocabulary = config.integer("vocab_size");
  c.context = config.integer("n_positions");
  c.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  c.tied = config.flag("tie_word_embeddings", true);
  const std::string act = config.text("activation_function", "gelu_new");
  c.mlp = act == "gelu" ? "gelu" : "gelu_tanh";
  config.refuse(
      "activation_function", act != "gelu" && act != "gelu_new" && act != "gelu_pytorch_tanh"
  );
  config.refuse("scale_attn_weights", !config.flag("scale_attn_weights", true));
  config.refuse(
      "scale_attn_by_inverse_layer_idx", config.flag("scale_attn_by_inverse_layer_idx", false)
  );
  config.refuse("add_cross_attention", config.flag("add_cross_attention", false));
}

void read_bert(const Config& config, ModelConfig& c) {
  c.layers = config.integer("num_hidden_layers");
  c.D = config.integer("hidden_size");
  c.groups = c.heads = config.integer("num_attention_heads");
  c.head = c.heads > 0 ? c.D / c.heads : 0;
  c.mlp_dim = config.integer("intermediate_size");
  c.vocabulary = config.integer("vocab_size");
  c.context = config.integer("max_position_embeddings");
  c.segments = config.integer("type_vocab_size", 2);
  c.norm_eps = config.number("layer_norm_eps", 1e-12);
  const std::string act = config.text("hidden_act", "gelu");
  c.mlp = act == "gelu" ? "gelu" : "gelu_tanh";
  config.refuse("hidden_act", act != "gelu" && act != "gelu_new" && act != "gelu_pytorch_tanh");
  config.refuse("is_decoder", config.flag("is_decoder", false));
  config.refuse(
      "position_embedding_type", config.text("position_embedding_type", "absolute") != "absolute"
  );
}

void check_range(const ModelConfig& c, const std::string& source) {
  constexpr int64_t kMost = 1 << 20;
  const struct {
    const char* name;
    int64_t value, least, most;
  } limits[] = {
      {"number of layers", c.layers, 1, 65536},
      {"model width", c.D, 1, kMost},
      {"number of heads", c.heads, 1, kMost},
      {"number of key/value heads", c.groups, 1, kMost},
      {"width of a head", c.head, 1, kMost},
      {"width of the mlp", c.mlp_dim, 1, 16 * kMost},
      {"vocabulary", c.vocabulary, 1, int64_t{1} << 30},
      {"context length", c.context, c.is_llama() ? 0 : 1, int64_t{1} << 50},
      {"number of token types", c.segments, 0, kMost}};
  for (const auto& [name, value, least, most] : limits) {
    if (value < least || value > most)
      throw DataError("{}: the {} must be {} to {}, got {}", source, name, least, most, value);
  }
  if (c.heads % c.groups != 0)
    throw DataError(
        "{}: {} heads are no multiple of {} key/value heads", source, c.heads, c.groups
    );
  if (c.is_llama() && c.head % 2 != 0)
    throw DataError("{}: rope needs heads of even width, got {}", source, c.head);
  if (!c.is_llama() && c.head * c.heads != c.D)
    throw DataError("{}: the model width {} is no multiple of {} heads", source, c.D, c.heads);
  if (c.window > 0 && (c.qkv_bias || c.qk_norm))
    throw DataError("{}: a window with biases or norms of q and k is not supported", source);
  if (c.out_bias && !c.qkv_bias)
    throw DataError("{}: a bias of the output alone is not supported", source);
  const bool finite = std::isfinite(c.norm_eps) && c.norm_eps >= 0 && std::isfinite(c.rope_base) &&
                      c.rope_base >= 1 && std::isfinite(c.scaling_factor) && c.scaling_factor >= 1;
  if (!finite)
    throw DataError(
        "{}: norm epsilon {}, rope base {} and rope factor {} must be numbers from 0, 1 and 1",
        source,
        c.norm_eps,
        c.rope_base,
        c.scaling_factor
    );
}

struct Known {
  std::string_view name;
  void (*read)(const Config&, ModelConfig&);
};
// THE list of architectures; architecture.cpp has their weights.
constexpr Known kArchitectures[] = {
    {"llama", read_llama},
    {"mistral", read_llama},
    {"qwen2", read_llama},
    {"qwen3", read_llama},
    {"gpt2", read_gpt2},
    {"bert", read_bert},
};

const Known& find_architecture(const std::string& name, const std::string& source) {
  for (const Known& known : kArchitectures) {
    if (known.name == name) return known;
  }
  throw DataError(
      "{}: architecture '{}' is not known; these are: {}",
      source,
      name.substr(0, 100),
      architecture_names()
  );
}

}  // namespace

std::string_view architecture_names() { return "llama, mistral, qwen2, qwen3, gpt2, bert, horner"; }

ModelConfig read_config(const Json& json, const std::string& source) {
  const Config config(json, source);
  ModelConfig c;
  c.architecture = config.text("model_type", "");
  if (c.architecture.empty()) throw DataError("{}: has no model_type", source);
  find_architecture(c.architecture, source).read(config, c);
  if (const Json* quantised = config.find("quantization_config"))
    throw DataError(
        "{}: weights quantised by '{}' are not read; a GGUF file of the model is",
        source,
        Config(*quantised, source + ": quantization_config")
            .text("quant_method", "unknown")
            .substr(0, 100)
    );
  check_range(c, source);
  return c;
}

// A number that the file holds in fp32, as it was before: 1e-6, not 9.99999997e-07.
static double decimal(double x) {
  return std::abs(x) < 1e38 ? std::strtod(fmt::format("{}", float(x)).c_str(), nullptr) : x;
}

ModelConfig read_config(const GgufHeader& header) {
  const std::string& source = header.source;
  ModelConfig c;
  c.architecture = header.text("general.architecture").value_or("");
  find_architecture(c.architecture, source);
  const auto key = [&](const char* name) { return fmt::format("{}.{}", c.architecture, name); };
  const auto integer = [&](const char* name, std::optional<int64_t> otherwise = {}) {
    const std::optional<int64_t> value = header.integer(key(name));
    if (!value && !otherwise) throw DataError("{}: has no {}", source, key(name));
    return value ? *value : *otherwise;
  };
  const auto find = [&](const char* name) -> const GgufTensor* {
    for (const GgufTensor& tensor : header.tensors) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  };
  const GgufTensor* embedding = find("token_embd.weight");
  if (!embedding) throw DataError("{}: has no tensor token_embd.weight", source);
  c.layers = integer("block_count");
  c.D = integer("embedding_length");
  c.heads = integer("attention.head_count");
  c.groups = integer("attention.head_count_kv", c.heads);
  c.head = integer("attention.key_length", c.heads > 0 ? c.D / c.heads : 0);
  c.mlp_dim = integer("feed_forward_length");
  c.vocabulary = embedding->shape[0];
  c.context = integer("context_length");
  c.tied = !find("output.weight") && c.architecture != "bert";
  c.mlp = c.is_llama() ? "swiglu" : c.architecture == "gpt2" ? "gelu_tanh" : "gelu";
  const char* eps =
      c.is_llama() ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
  c.norm_eps = decimal(header.number(key(eps)).value_or(c.norm_eps));
  if (c.architecture == "bert") {
    const GgufTensor* types = find("token_types.weight");
    c.segments = types ? types->shape[0] : 0;
  }
  if (c.is_llama()) {
    c.rope_base = decimal(header.number(key("rope.freq_base")).value_or(10000));
    c.window = integer("attention.sliding_window", 0);
    c.qkv_bias = find("blk.0.attn_q.bias") != nullptr;
    c.out_bias = find("blk.0.attn_output.bias") != nullptr;
    c.mlp_bias = find("blk.0.ffn_up.bias") != nullptr;
    c.qk_norm = find("blk.0.attn_q_norm.weight") != nullptr;
    const std::string scaling = header.text(key("rope.scaling.type")).value_or("none");
    if (scaling != "none" && scaling != "linear")
      throw DataError("{}: {} = {} is not supported", source, key("rope.scaling.type"), scaling);
    c.scaling = scaling;
    if (scaling == "linear")
      c.scaling_factor = header.number(key("rope.scaling.factor")).value_or(1);
    if (integer("rope.dimension_count", c.head) != c.head ||
        integer("attention.value_length", c.head) != c.head)
      throw DataError("{}: heads whose parts differ in width are not supported", source);
  }
  check_range(c, source);
  return c;
}

std::map<std::string, std::string> read_index(std::string_view text, const std::string& source) {
  using Sorted = nlohmann::json;  // horner::Json searches linearly
  Sorted index;
  try {
    index = build_json<Sorted>(text, 3);
  } catch (const DataError& error) {
    throw DataError("{}: {}", source, error.what());
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw DataError("{}: has no weight_map", source);
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string path = file.is_string() ? file.get<std::string>() : "";
    if (path.empty() || path.find('/') != std::string::npos || path.find('\0') != std::string::npos)
      throw DataError(
          "{}: the file of {} must be a name beside the index", source, to_line(name.substr(0, 100))
      );
    files[name] = path;
  }
  return files;
}

}  // namespace horner
