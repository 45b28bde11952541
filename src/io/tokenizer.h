// Tokenizers: text to ids and back, by the steps that a tokenizer.json describes.
//
//   added tokens -> normaliser -> pieces -> model (bytes, BPE, WordPiece) -> ids around it
//
// If a file needs something that is not implemented, it is refused by name. Two keys are ignored, because the caller decides
// them: truncation and padding. Text is bytes: a byte-level tokenizer restores every string exactly, UTF-8 or not, if it has a
// token for each byte; bytes without one are left out, as by Hugging Face.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace horner {

struct TokenizerParts;

struct EncodeOptions {
  bool surround = false;  // add the ids that the file puts around a text: BOS, [CLS] … [SEP]
  bool control = true;    // special tokens that appear in the text become their ids
};

class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // UsageError for an id outside the vocabulary; special tokens are left out unless `special`.
  std::string decode(const std::vector<int32_t>& ids, bool special = false) const;

  int64_t vocabulary() const;                               // highest id + 1
  std::optional<int32_t> id(std::string_view token) const;  // as the file writes it
  const std::string& token(int32_t id) const;               // as the file writes it; "" in a gap
  const std::string& bytes(int32_t id) const;               // of text; special tokens have none
  bool special(int32_t id) const;
  std::optional<int32_t> begin() const;  // of a document, if the files name such a token
  std::optional<int32_t> end() const;    // of a document
  const std::string& kind() const;       // bytes, BPE, WordPiece
  const std::string& hash() const;       // XXH3 (128 bits) of the files it was read from
  // Name and bytes of files from which load_tokenizer makes it again; the tokenizer `bytes` has none.
  const std::vector<std::pair<std::string, std::string>>& files() const;

 private:
  std::shared_ptr<const TokenizerParts> parts_;
};

// id = byte; 256 separates documents.
Tokenizer byte_tokenizer();
constexpr int32_t kByteSeparator = 256;

// "bytes", a folder or one of its files: tokenizer.json, or vocab.json with merges.txt (GPT-2), or
// vocab.txt (BERT). tokenizer_config.json in the same folder names the tokens that begin and end a document.
Tokenizer load_tokenizer(const std::string& path);

// What load_tokenizer does with the bytes of the files. `source` is their name in an error; `config` is the content of
// tokenizer_config.json, empty if there is none.
Tokenizer parse_tokenizer_json(
    std::string_view text, const std::string& source, std::string_view config = {}
);
Tokenizer parse_gpt2(
    std::string_view vocabulary,
    std::string_view merges,
    const std::string& source,
    std::string_view config = {}
);
Tokenizer parse_bert(
    std::string_view vocabulary, const std::string& source, std::string_view config = {}
);

}  // namespace horner
