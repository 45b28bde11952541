// Tokens of a corpus, one stream for each split, in memory or mapped from a file.
//
//   file   "HORNTOK2"  u64 bytes of a token (2 or 4)  u64 x 3 tokens of train, valid, test
//          f64 x 3 bytes of text of each  then the tokens, little endian, one split after the other,
//          and 32 digits: the XXH3 of the XXH3 of the header and of each 65,536 tokens of a split
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"

namespace horner {

class TokenStream {
 public:
  TokenStream() = default;
  explicit TokenStream(std::vector<uint32_t> tokens);
  TokenStream(std::shared_ptr<const MappedFile> file, size_t begin, size_t width, int64_t size);

  TokenStream slice(int64_t begin, int64_t end) const;
  int64_t size() const { return size_; }
  int64_t operator[](int64_t i) const { return narrow_ ? narrow_[i] : wide_[i]; }

 private:
  std::shared_ptr<const void> owner_;
  const uint16_t* narrow_ = nullptr;
  const uint32_t* wide_ = nullptr;
  int64_t size_ = 0;
};

struct TokenSplits {
  std::array<TokenStream, 3> streams;  // by Split
  std::array<double, 3> bytes{};       // of text
};

// Nothing if there is no such file; a DataError if it is damaged.
std::optional<TokenSplits> read_tokens(const std::string& path);
void write_tokens(const std::string& path, const TokenSplits& splits, int64_t vocabulary);

// A file of tokens from another program: llm.c (256 numbers of 32 bits before the tokens: magic, version, count) or nanoGPT
// (16 bits per token, nothing else).
TokenStream read_token_file(const std::string& path);

}  // namespace horner
