// What a foreign model's file says about its layers, read from an HF config.json or from GGUF metadata.
// No torch here: this part is fuzzed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "io/gguf_header.h"

namespace horner {

struct ModelConfig {
  std::string architecture;  // llama, mistral, qwen2, qwen3, gpt2, bert
  int64_t layers = 0;
  int64_t D = 0;
  int64_t heads = 0;
  int64_t groups = 0;  // key/value heads
  int64_t head = 0;    // width of a head
  int64_t mlp_dim = 0;
  int64_t vocabulary = 0;
  int64_t context = 0;   // longest text it was made for
  int64_t segments = 0;  // bert's token types
  int64_t window = 0;    // 0: reads all tokens
  std::string mlp;       // swiglu, gelu, gelu_tanh
  double norm_eps = 1e-6;
  double rope_base = 10000;
  std::string scaling = "none";  // of rope: none, linear, llama3
  double scaling_factor = 1, scaling_low = 1, scaling_high = 4;
  int64_t scaling_length = 8192;
  bool tied = false;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool qk_norm = false;

  bool is_llama() const { return architecture != "gpt2" && architecture != "bert"; }
};

// The foreign architectures that are read, for errors and documents.
std::string_view architecture_names();

// DataError that names the file and the key when something is missing, out of range or not supported.
ModelConfig read_config(const Json& config, const std::string& source);
ModelConfig read_config(const GgufHeader& header);

// The file of each tensor, of model.safetensors.index.json. The files lie beside the index.
std::map<std::string, std::string> read_index(std::string_view text, const std::string& source);

}  // namespace horner
