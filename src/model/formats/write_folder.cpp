#include "model/formats/write_folder.h"

#include "core/file.h"
#include "io/safetensors.h"
#include "model/formats/checkpoint_folder.h"

namespace horner {
namespace {

Json generation_of(const LoadedModel& like) {
  Json json = Json::object();
  const auto set = [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  set("bos_token_id", like.begin);
  if (!like.ends.empty()) json["eos_token_id"] = like.ends;
  set("do_sample", like.defaults.sample);
  set("temperature", like.defaults.temperature);
  set("top_k", like.defaults.top_k);
  set("top_p", like.defaults.top_p);
  set("min_p", like.defaults.min_p);
  set("repetition_penalty", like.defaults.repetition_penalty);
  return json;
}

}  // namespace

Json folder_config(const ModelOptions& o) {
  return {
      {"architectures", {"Horner"}},
      {"model_type", "horner"},
      {"format_version", kFormatVersion},
      {"hidden_size", o.D},
      {"num_hidden_layers", o.layers},
      {"vocab_size", o.vocabulary},
      {"tie_word_embeddings", o.tied},
      {"max_position_embeddings", o.positions},
      {"torch_dtype", "float32"},
      {"horner", to_json(o)}};
}

void write_model_folder(const std::string& folder, const Model& model, const LoadedModel& like) {
  make_folder(folder);
  write_safetensors(folder + "/model.safetensors", tensors_of(model));
  for (const auto& [name, bytes] : like.need_tokenizer().files())
    write_file(folder + "/" + name, bytes);
  if (!like.chat_template.empty()) write_file(folder + "/chat_template.jinja", like.chat_template);
  write_file(folder + "/generation_config.json", generation_of(like).dump(2) + "\n");
  write_file(folder + "/config.json", folder_config(model.options()).dump(2) + "\n");
}

}  // namespace horner
