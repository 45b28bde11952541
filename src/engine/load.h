// A language model from a folder: the weights, the tokenizer, and the tokens that end a text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/formats/formats.h"

namespace horner {

struct LanguageModel {
  LoadedModel opened;            // blocks of a GGUF file, for fastest_runner
  std::shared_ptr<Model> model;  // on its device
  Tokenizer tokenizer;
  std::vector<int32_t> ends;  // tokens that end a text, or a message of a chat
  std::string chat_template;  // empty: none
};

// A MODEL (model/formats/formats.h). DataError if there is none; UsageError if it does not write text. `weights` as below: on a
// CPU the quantised weights of a GGUF file are read as values only if they are wanted in another type.
LanguageModel load_language_model(
    const std::string& name, at::Device device, const std::string& weights = "auto"
);

// What computes its steps fastest: on a CPU the decoder of engine/cpu where it knows the model, else Model::forward; on a GPU CUDA
// graphs of Model::forward (slot_runner.h), whose matrices become bf16.
// `weights`: auto (on a CPU: blocks of a GGUF file as they are; on a GPU: bf16), fp32, bf16, q8 or q4; UsageError if it cannot be.
// `invariant`: a stream has the same bits whatever steps beside it; the decoder of engine/cpu has them always.
// `rows`: most streams in a step. `memory`: bytes of their states on a GPU at most, 0: no limit; it limits the tokens of a stream.
std::unique_ptr<Runner> fastest_runner(
    const LanguageModel& loaded,
    const std::string& weights = "auto",
    bool invariant = false,
    int64_t rows = 64,
    int64_t memory = 0
);

// The tokens of a text at the beginning of a stream. An empty text is the token that begins a document.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& text);

}  // namespace horner
