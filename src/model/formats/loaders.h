// The readers behind open_model, one per format.
#pragma once

#include <functional>

#include "model/formats/architecture.h"
#include "model/formats/formats.h"
#include "model/formats/gguf_tokenizer.h"

namespace horner {

LoadedModel open_hf(
    const std::string& folder, const OpenOptions& options
);  // foreign architectures
LoadedModel open_gguf(const std::string& path, const OpenOptions& options);
LoadedModel open_horner(
    const std::string& folder, const OpenOptions& options
);  // of `horner train`

// Of a folder: chat_template.jinja, or the entry of tokenizer_config.json; empty if there is none.
std::string chat_template_in(const std::string& folder);

// What generation_config.json, config.json and the tokenizer's files of a folder say about decoding.
void read_decoding(const std::string& folder, const Json& config, LoadedModel& loaded);

// DataError if a file of so many tensors cannot hold the layers, before anything is made for each of them.
void check_layers(const ModelConfig& config, size_t tensors, const std::string& source);

// A model of these settings whose parameters are the tensors that `read` gives for each weight; where it gives none, the
// parameter has a shape and no values. `source` is for the DataError about a shape.
std::shared_ptr<Model> filled_model(
    const ModelConfig& config,
    const std::vector<Weight>& weights,
    const OpenOptions& options,
    const std::string& source,
    const std::function<at::Tensor(const Weight&)>& read
);

}  // namespace horner
