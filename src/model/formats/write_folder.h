// Writes a model of ours as a folder in the Hugging Face layout, which every command opens.
//
//   config.json  model.safetensors  generation_config.json  chat_template.jinja  and the tokenizer's files
#pragma once

#include "model/formats/formats.h"

namespace horner {

// What config.json says about a model of ours.
Json folder_config(const ModelOptions& options);

// The folder of `model`, which reads and writes texts as `like` does: its tokenizer, chat template, ends of a text and decoding
// settings. The files are written one by one, config.json last, so an interrupted folder is no model.
void write_model_folder(const std::string& folder, const Model& model, const LoadedModel& like);

}  // namespace horner
