// The parts of a tokenizer, as a file describes them.
#pragma once

#include "io/tokenizer/decode.h"
#include "io/tokenizer/model.h"
#include "io/tokenizer/normalize.h"
#include "io/tokenizer/split.h"

namespace horner {

// A token that is found in the text before anything else is done with it.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;             // not inside a word
  bool lstrip = false, rstrip = false;  // includes the white space before it, after it
  bool normalized = false;              // searched in the normalised text, itself normalised
  bool special = false;
};

struct TokenizerParts {
  std::string kind, hash;
  std::vector<std::pair<std::string, std::string>> files;  // name, bytes
  std::vector<AddedToken> added;
  std::vector<TextStep> normalizer;
  Splitter splitter;
  std::shared_ptr<const TokenModel> model;
  Vocabulary vocabulary;
  std::vector<int32_t> before, after;  // a text
  Decoder decoder;
  std::optional<int32_t> begin, end;

  // Made by Tokenizer from the above.
  std::vector<std::string> tokens, bytes;  // by id
  std::vector<bool> special;
};

// DataError without a source.
TokenizerParts read_json(std::string_view text);  // of tokenizer.json, without hash, begin and end
Vocabulary read_vocabulary(const Object& json);
using Merges = std::vector<std::pair<std::string, std::string>>;
void add_merge(Merges& merges, const std::string& line);  // "left right"

std::string normalized_text(const std::vector<TextStep>& steps, std::string text);

// Cuts `text` at those added tokens for which `wanted` holds: the longest that begins leftmost.
// call(part, null) for text, call(content, token) for a token.
void each_added(
    std::string_view text,
    const std::vector<const AddedToken*>& tokens,
    const std::function<void(std::string_view part, const AddedToken* token)>& call
);

}  // namespace horner
