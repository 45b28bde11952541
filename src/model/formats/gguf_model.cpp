// GGUF files. The weights' values are computed from the mapped blocks, or left to layers that read the blocks themselves.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"
#include "model/formats/loaders.h"
#include "nn/position/position.h"

namespace horner {
namespace {

// Llama 3's files hold the divisors of rope's frequencies as a tensor, and nothing that names the rule behind them.
void read_rope_divisors(const Gguf& file, ModelConfig& c) {
  if (!file.contains("rope_freqs.weight")) return;
  const at::Tensor divisors = file.get("rope_freqs.weight").to(at::kDouble);
  PositionOptions plain, scaled;
  plain.base = scaled.base = c.rope_base;
  scaled.scaling = "llama3";
  for (const double factor : {8.0, 32.0}) {  // Llama 3.1 and 3.3; 3.2
    scaled.scaling_factor = factor;
    const int64_t P = c.head / 2;
    const at::Tensor wanted = rope_spectrum(P, plain) / rope_spectrum(P, scaled);
    if (divisors.sizes() != wanted.sizes() || !at::allclose(divisors, wanted, 1e-4)) continue;
    c.scaling = "llama3";
    c.scaling_factor = factor;
    c.scaling_low = scaled.scaling_low;
    c.scaling_high = scaled.scaling_high;
    c.scaling_length = scaled.scaling_length;
    return;
  }
  throw DataError("{}: rope_freqs.weight follows no rule that is known", file.header().source);
}

// Our rows of a tensor, in our order.
at::Tensor our_rows(at::Tensor values, const Weight& weight) {
  if (weight.rows > 0 && values.size(0) == 3 * weight.rows)
    values = values.narrow(0, weight.first, weight.rows);
  if (weight.rotary_heads == 0) return values;
  const int64_t rows = values.size(0), head = rows / weight.rotary_heads;
  return values.reshape({weight.rotary_heads, head / 2, 2, -1})
      .transpose(1, 2)
      .reshape(values.sizes());
}

void read_ids(const GgufHeader& header, LoadedModel& loaded) {
  const auto id = [&](const char* name) {
    const auto value = header.integer(fmt::format("tokenizer.ggml.{}_token_id", name));
    return value && *value >= 0 && *value <= INT32_MAX ? std::optional<int32_t>(int32_t(*value))
                                                       : std::nullopt;
  };
  loaded.begin = id("bos");
  for (const char* name : {"eos", "eot"}) {
    if (const auto end = id(name)) loaded.ends.push_back(*end);
  }
}

}  // namespace

LoadedModel open_gguf(const std::string& path, const OpenOptions& options) {
  LoadedModel loaded;
  loaded.gguf = Gguf::open(path);
  const Gguf& file = *loaded.gguf;
  ModelConfig config = read_config(file.header());
  read_rope_divisors(file, config);
  check_layers(config, file.header().tensors.size(), path);
  const std::vector<Weight> weights = weights_of(config);
  for (const Weight& weight : weights) {
    if (!file.contains(weight.gguf)) throw DataError("{}: has no tensor {}", path, weight.gguf);
    const GgufTensor& tensor = file.tensor(weight.gguf);
    const int64_t rows = weight.rows > 0 ? weight.rows : tensor.shape[0];
    if (weight.rotary_heads > 0 && rows % (2 * weight.rotary_heads) != 0)
      throw DataError("{}: {} has {} rows", path, weight.gguf, rows);
    if (tensor.shape.size() == 2)
      loaded.blocks[weight.ours] = {
          &tensor, rows, tensor.shape[1], weight.first, weight.rotary_heads};
  }
  loaded.source = path;
  loaded.architecture = config.architecture;
  loaded.context = config.context;
  loaded.model = filled_model(config, weights, options, path, [&](const Weight& weight) {
    const bool plain = file.tensor(weight.gguf).type->weights == 1;
    return plain || options.dequantise ? our_rows(file.get(weight.gguf), weight) : at::Tensor();
  });
  loaded.chat_template = file.header().text("tokenizer.chat_template").value_or("");
  read_ids(file.header(), loaded);
  loaded.tokenizer = gguf_tokenizer(file.header());
  return loaded;
}

}  // namespace horner
