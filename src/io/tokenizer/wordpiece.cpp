#include <algorithm>

#include "core/check.h"
#include "io/tokenizer/model.h"
#include "io/tokenizer/unicode.h"

namespace horner {

void ByteModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
}

WordPieceModel::WordPieceModel(
    Vocabulary vocabulary, std::string prefix, const std::string& unknown, int64_t longest
)
    : vocabulary_(std::move(vocabulary)), prefix_(std::move(prefix)), longest_word_(longest) {
  const auto found = vocabulary_.find(unknown);
  if (found == vocabulary_.end()) {
    throw DataError("model WordPiece: unk_token {} is no token", in_quotes(unknown));
  }
  unknown_ = found->second;
  for (const auto& [token, id] : vocabulary_) {
    longest_token_ = std::max(longest_token_, token.size());
  }
}

void WordPieceModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  int64_t characters = 0;
  for (std::string_view rest = piece; !rest.empty(); rest.remove_prefix(code_point(rest).size)) {
    ++characters;
  }
  std::string token;
  while (!piece.empty() && characters <= longest_word_) {
    const std::string_view prefix = ids.size() == before ? std::string_view() : prefix_;
    size_t size = std::min(piece.size(), longest_token_);
    auto found = vocabulary_.end();
    for (; size > 0; --size) {  // a token is UTF-8, so that no match ends inside a character
      token.assign(prefix).append(piece.substr(0, size));
      found = vocabulary_.find(token);
      if (found != vocabulary_.end()) break;
    }
    if (size == 0) break;
    ids.push_back(found->second);
    piece.remove_prefix(size);
  }
  if (piece.empty()) return;
  ids.resize(before);
  ids.push_back(unknown_);
}

}  // namespace horner
