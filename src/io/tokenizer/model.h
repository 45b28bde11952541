// Models: how a piece of text becomes ids.
//
//   bytes       id = byte
//   BPE         symbols (bytes or characters) of a piece; as long as a pair of neighbours is on the
//               list of merges, the earliest on the list is merged, the leftmost first
//   WordPiece   the longest token that begins the piece, then the longest with the prefix ## that
//               continues it, and so on; if that gets stuck, the piece is unknown
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizer/spec.h"

namespace horner {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
};

class ByteModel : public TokenModel {
 public:
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;
};

struct BpeOptions {
  bool byte_level = false;     // symbols are bytes; tokens are written in GPT-2's alphabet
  bool byte_fallback = false;  // an unknown character becomes tokens <0x00> … <0xFF>
  bool fuse_unknown = false;   // neighbouring unknown characters become one
  bool ignore_merges = false;  // a piece that is a token is not taken apart
  std::optional<std::string> unknown;
};

class BpeModel : public TokenModel {
 public:
  // merges: the two tokens of each, in order.
  BpeModel(
      const Vocabulary& vocabulary,
      const std::vector<std::pair<std::string, std::string>>& merges,
      const BpeOptions& options
  );
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  struct Merge {
    int32_t rank, id;
  };
  std::vector<int32_t> symbols(std::string_view piece) const;
  const Merge* find_merge(int32_t left, int32_t right) const;

  BpeOptions o_;
  Vocabulary vocabulary_;  // by the bytes of a token
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<uint64_t, Merge> merges_;  // by left 2^32 + right
  int32_t unknown_ = -1;
};

class WordPieceModel : public TokenModel {
 public:
  WordPieceModel(
      Vocabulary vocabulary, std::string prefix, const std::string& unknown, int64_t longest
  );
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  Vocabulary vocabulary_;
  std::string prefix_;
  int32_t unknown_;
  int64_t longest_word_;      // characters; a longer piece is unknown
  size_t longest_token_ = 0;  // bytes
};

// The bytes of a token that is written in GPT-2's alphabet, which has one printable character for each byte; nothing if the
// token has another character.
std::optional<std::string> from_byte_alphabet(std::string_view token);

std::optional<uint8_t> fallback_byte(std::string_view token);  // of <0x0A>

}  // namespace horner
