#include "model/formats/architecture.h"

#include "core/check.h"

namespace horner {
namespace {

MixerSpec mixer_of(const ModelConfig& c) {
  MixerSpec spec;
  spec.name = c.window > 0 ? "window" : "softmax";
  const auto set = [&](const char* name, const auto& value) {
    spec.settings.push_back({name, fmt::format("{}", value)});
  };
  set("heads", c.heads);
  if (c.groups != c.heads) set("groups", c.groups);
  const bool wide = c.head * c.heads != c.D;
  if (wide && c.window > 0) set("head", c.head);
  if (wide && c.window == 0) set("key", c.head), set("value", c.head);
  if (c.window > 0) set("window", c.window);
  if (!c.is_llama()) set("bias", true);
  if (c.architecture == "bert") set("causal", false);
  if (!c.is_llama()) {
    set("position.kind", "none");
    return spec;
  }
  if (c.qkv_bias) set(c.out_bias ? "bias" : "qkv_bias", true);
  if (c.qk_norm) set("qk_norm", true), set("qk_norm_eps", c.norm_eps);
  set("position.base", c.rope_base);
  if (c.scaling == "none") return spec;
  set("position.scaling", c.scaling);
  set("position.scaling_factor", c.scaling_factor);
  if (c.scaling == "llama3") {
    set("position.scaling_low", c.scaling_low);
    set("position.scaling_high", c.scaling_high);
    set("position.scaling_length", c.scaling_length);
  }
  return spec;
}

// A list of weights, with names that are put together from parts.
struct List {
  std::vector<Weight> all;
  std::string ours, hf, gguf;  // before each name

  void add(const std::string& our, const std::string& theirs, const std::string& in_gguf) {
    all.push_back({ours + our, hf + theirs, gguf + in_gguf});
  }
  // NAME_weight, and NAME_bias where there is one.
  void both(
      const std::string& our, const std::string& theirs, const std::string& in_gguf, bool bias
  ) {
    add(our + "_weight", theirs + ".weight", in_gguf + ".weight");
    if (bias) add(our + "_bias", theirs + ".bias", in_gguf + ".bias");
  }
  void begin_layer(int64_t l, const char* name) {
    ours = fmt::format("layer_{}.", l);
    hf = fmt::format("{}.{}.", name, l);
    gguf = fmt::format("blk.{}.", l);
  }
};

void llama_layer(const ModelConfig& c, List& list) {
  list.both("norm", "input_layernorm", "attn_norm", false);
  list.both("mlp_norm", "post_attention_layernorm", "ffn_norm", false);
  // Only the files of these architectures are permuted.
  const bool permuted = c.architecture == "llama" || c.architecture == "mistral";
  const auto project = [&](const char* our, const char* hf, const char* gguf, int64_t heads) {
    const size_t before = list.all.size();
    list.both(our, hf, gguf, c.qkv_bias);
    for (size_t i = before; i < list.all.size(); ++i)
      list.all[i].rotary_heads = permuted ? heads : 0;
  };
  project("mixer.q", "self_attn.q_proj", "attn_q", c.heads);
  project("mixer.k", "self_attn.k_proj", "attn_k", c.groups);
  list.both("mixer.v", "self_attn.v_proj", "attn_v", c.qkv_bias);
  list.both("mixer.out", "self_attn.o_proj", "attn_output", c.out_bias);
  if (c.qk_norm) {
    list.both("mixer.q_norm", "self_attn.q_norm", "attn_q_norm", false);
    list.both("mixer.k_norm", "self_attn.k_norm", "attn_k_norm", false);
  }
  list.both("mlp_gate", "mlp.gate_proj", "ffn_gate", c.mlp_bias);
  list.both("mlp_up", "mlp.up_proj", "ffn_up", c.mlp_bias);
  list.both("mlp_down", "mlp.down_proj", "ffn_down", c.mlp_bias);
}

void gpt2_layer(const ModelConfig& c, List& list) {
  list.both("norm", "ln_1", "attn_norm", true);
  list.both("mlp_norm", "ln_2", "ffn_norm", true);
  const size_t matrices = list.all.size();
  for (int64_t i = 0; i < 3; ++i) {  // q, k and v are rows of one matrix
    const size_t before = list.all.size();
    list.both(fmt::format("mixer.{}", "qkv"[i]), "attn.c_attn", "attn_qkv", true);
    for (size_t j = before; j < list.all.size(); ++j) {
      list.all[j].first = i * c.D;
      list.all[j].rows = c.D;
    }
  }
  list.both("mixer.out", "attn.c_proj", "attn_output", true);
  list.both("mlp_up", "mlp.c_fc", "ffn_up", true);
  list.both("mlp_down", "mlp.c_proj", "ffn_down", true);
  for (size_t i = matrices; i < list.all.size(); ++i)
    list.all[i].conv1d = list.all[i].ours.ends_with("_weight");
}

void bert_layer(List& list) {
  list.both("norm", "attention.output.LayerNorm", "attn_output_norm", true);
  list.both("mlp_norm", "output.LayerNorm", "layer_output_norm", true);
  list.both("mixer.q", "attention.self.query", "attn_q", true);
  list.both("mixer.k", "attention.self.key", "attn_k", true);
  list.both("mixer.v", "attention.self.value", "attn_v", true);
  list.both("mixer.out", "attention.output.dense", "attn_output", true);
  list.both("mlp_up", "intermediate.dense", "ffn_up", true);
  list.both("mlp_down", "output.dense", "ffn_down", true);
}

}  // namespace

ModelOptions model_options(const ModelConfig& c) {
  ModelOptions o;
  o.pattern = {mixer_of(c).text()};
  o.layers = c.layers;
  o.D = c.D;
  o.vocabulary = c.vocabulary;
  o.mlp = c.mlp;
  o.mlp_dim = c.mlp_dim;
  o.mlp_bias = c.mlp_bias || !c.is_llama();
  o.norm = c.is_llama() ? "rms" : "layer";
  o.norm_bias = !c.is_llama();
  o.norm_eps = c.norm_eps;
  o.tied = c.tied;
  if (!c.is_llama()) o.positions = c.context;
  if (c.architecture == "bert") {
    o.output = "hidden";
    o.norm_place = "after";
    o.embedding_norm = true;
    o.segments = c.segments;
  }
  return o;
}

std::string_view hf_prefix(const ModelConfig& c) {
  return c.is_llama() ? "model." : c.architecture == "gpt2" ? "transformer." : "bert.";
}

std::vector<Weight> weights_of(const ModelConfig& c) {
  List list;
  if (c.is_llama()) {
    list.add("embedding", "embed_tokens.weight", "token_embd.weight");
    list.both("norm", "norm", "output_norm", false);
  } else if (c.architecture == "gpt2") {
    list.add("embedding", "wte.weight", "token_embd.weight");
    list.add("positions", "wpe.weight", "position_embd.weight");
    list.both("norm", "ln_f", "output_norm", true);
  } else {
    list.add("embedding", "embeddings.word_embeddings.weight", "token_embd.weight");
    list.add("positions", "embeddings.position_embeddings.weight", "position_embd.weight");
    if (c.segments > 0)
      list.add("segments", "embeddings.token_type_embeddings.weight", "token_types.weight");
    list.both("embedding_norm", "embeddings.LayerNorm", "token_embd_norm", true);
  }
  if (!c.tied && c.architecture != "bert")
    list.add("head_weight", "lm_head.weight", "output.weight");
  for (int64_t l = 0; l < c.layers; ++l) {
    list.begin_layer(l, c.is_llama() ? "layers" : c.architecture == "gpt2" ? "h" : "encoder.layer");
    if (c.is_llama()) {
      llama_layer(c, list);
    } else if (c.architecture == "gpt2") {
      gpt2_layer(c, list);
    } else {
      bert_layer(list);
    }
  }
  return list.all;
}

}  // namespace horner
