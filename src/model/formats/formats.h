// Opens a MODEL of any format, as our model with its tokenizer and what decoding wants to know.
//
//   MODEL                                                      what it is
//   folder with config.json, model.safetensors (or shards)     Hugging Face, of the architectures below
//   FILE.gguf                                                  GGUF version 3, blocks stay mapped
//   run folder or checkpoint of `horner train`                 any pattern of mixers
//   name of `horner get`, when there is no such path           what that command downloaded
//
// Architectures: llama, mistral, qwen2, qwen3, gpt2, bert (an encoder), horner. Nothing behind this header knows where a model
// came from.
#pragma once

#include <map>

#include "io/gguf.h"
#include "io/tokenizer.h"
#include "model/model.h"

namespace horner {

struct OpenOptions {
  std::optional<at::ScalarType> dtype =
      at::kFloat;  // of the parameters; none: as the file has them
  // false: parameters whose blocks are quantised have a shape but no values, for layers that read `blocks`
  bool dequantise = true;
};

// Rows of a mapped GGUF tensor that make up one parameter of ours.
struct BlockRows {
  const GgufTensor* tensor;      // its type and shape; the data are LoadedModel::gguf's
  int64_t rows, width;           // of our parameter, (rows, width)
  int64_t first = 0;             // row of the tensor
  int64_t rotary_heads = 0;      // rows are permuted inside each of so many heads; 0: in order
  int64_t row(int64_t i) const;  // the tensor's row that holds row i of ours
};

// Decoding settings that the model's authors recommend.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<bool> sample;
};

struct LoadedModel {
  std::shared_ptr<Model> model;  // in evaluation mode
  std::optional<Tokenizer> tokenizer;
  std::string source;         // the file or folder it was read from
  std::string architecture;   // llama, .., horner
  int64_t context = 0;        // longest text it was made for; 0: not known
  std::string chat_template;  // Jinja; empty: none
  std::optional<int32_t>
      begin;  // token before a text; `surround` of the tokenizer adds it where it is wanted
  std::vector<int32_t> ends;  // tokens that end a text
  GenerationDefaults defaults;

  std::optional<Gguf> gguf;  // the mapped file
  std::map<std::string, BlockRows>
      blocks;  // by the name of our parameter; of GGUF files, plain types too

  const Tokenizer& need_tokenizer() const;  // DataError if there is none
};

// DataError that says what is wrong with the file, or what a MODEL can be. A UsageError inside is our mistake.
LoadedModel open_model(const std::string& model, const OpenOptions& options = {});

// The settings alone, and the tokenizer alone: of a MODEL without its weights. A tokenizer may also be "bytes", or a folder or
// file of a tokenizer without a model.
ModelOptions options_of_model(const std::string& model);
Tokenizer open_tokenizer(const std::string& model);                 // DataError if it has none
std::optional<Tokenizer> find_tokenizer(const std::string& model);  // nothing if it has none

// The files that hold its weights.
std::vector<std::string> weight_files(const std::string& model);

// The path of MODEL: itself if it exists, else where `horner get` puts the model of this name. DataError if there is neither.
std::string find_model(const std::string& model);

}  // namespace horner
