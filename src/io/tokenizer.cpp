#include "io/tokenizer.h"

#include <numeric>

#include "core/check.h"
#include "io/tokenizer/parts.h"

namespace horner {
namespace {

constexpr size_t kCachedPiece = 64;  // bytes of the longest piece that is remembered
constexpr size_t kCachedPieces = 100'000;

// Encodes pieces; words come again and again in a text, so their ids are remembered.
class PieceEncoder {
 public:
  PieceEncoder(const TokenModel& model, std::vector<int32_t>& ids) : model_(model), ids_(ids) {}

  void operator()(std::string_view piece) {
    if (piece.size() > kCachedPiece) return model_.encode(piece, ids_);
    const auto found = known_.find(piece);
    if (found != known_.end()) {
      const auto [begin, count] = found->second;
      ids_.insert(ids_.end(), pool_.begin() + begin, pool_.begin() + begin + count);
      return;
    }
    const size_t before = ids_.size();
    model_.encode(piece, ids_);
    if (known_.size() == kCachedPieces) return;
    known_.emplace(piece, std::pair(int64_t(pool_.size()), int64_t(ids_.size() - before)));
    pool_.insert(pool_.end(), ids_.begin() + int64_t(before), ids_.end());
  }

 private:
  const TokenModel& model_;
  std::vector<int32_t>& ids_;
  std::unordered_map<std::string, std::pair<int64_t, int64_t>, TextHash, std::equal_to<>> known_;
  std::vector<int32_t> pool_;
};

std::string bytes_of(const TokenizerParts& parts, const std::string& token) {
  if (parts.decoder.byte_level || parts.splitter.byte_level) {
    return from_byte_alphabet(token).value_or(token);
  }
  return parts.decoder.decode({"a", token}).substr(1);  // not first, where a space would be dropped
}

void fill_tables(TokenizerParts& parts) {
  int32_t most = -1;
  for (const auto& [token, id] : parts.vocabulary) most = std::max(most, id);
  for (const AddedToken& token : parts.added) most = std::max(most, token.id);
  const auto n = static_cast<size_t>(most + 1);
  parts.tokens.resize(n);
  parts.bytes.resize(n);
  parts.special.resize(n);
  for (const auto& [token, id] : parts.vocabulary) {
    parts.tokens[size_t(id)] = token;
    parts.bytes[size_t(id)] = bytes_of(parts, token);
  }
  for (const AddedToken& token : parts.added) {
    parts.tokens[size_t(token.id)] = token.content;
    parts.bytes[size_t(token.id)] = token.special ? "" : token.content;
    parts.special[size_t(token.id)] = token.special;
    parts.vocabulary[token.content] = token.id;
  }
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts) {
  fill_tables(parts);
  // Those that are found after normalisation are searched for as it writes them.
  for (AddedToken& token : parts.added) {
    if (token.normalized) token.content = normalized_text(parts.normalizer, token.content);
  }
  parts_ = std::make_shared<const TokenizerParts>(std::move(parts));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<const AddedToken*> raw, normalized;
  for (const AddedToken& token : parts_->added) {
    if (options.control || !token.special) (token.normalized ? normalized : raw).push_back(&token);
  }
  std::vector<int32_t> ids;
  if (options.surround) ids = parts_->before;
  PieceEncoder encoder(*parts_->model, ids);
  const PieceSink sink = [&](std::string_view piece) { encoder(piece); };
  bool first = true;
  const auto encode_part = [&](std::string_view part, const AddedToken* token) {
    if (token) {
      ids.push_back(token->id);
    } else {
      parts_->splitter.split(part, first, sink);
    }
    first = false;
  };
  each_added(text, raw, [&](std::string_view part, const AddedToken* token) {
    if (token || parts_->normalizer.empty()) {
      if (token || normalized.empty()) return encode_part(part, token);
      return each_added(part, normalized, encode_part);
    }
    each_added(normalized_text(parts_->normalizer, std::string(part)), normalized, encode_part);
  });
  if (options.surround) ids.insert(ids.end(), parts_->after.begin(), parts_->after.end());
  return ids;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool special) const {
  const bool byte_level = parts_->decoder.byte_level;
  std::string text;
  Texts tokens;
  for (const int32_t id : ids) {
    HORNER_CHECK(
        id >= 0 && id < vocabulary(), "[tokenizer] id {} is not below {}", id, vocabulary()
    );
    if (this->special(id)) {
      if (!special) continue;
      byte_level ? text += token(id) : tokens.emplace_back(token(id));
    } else if (byte_level) {
      text += bytes(id);
    } else {
      tokens.push_back(token(id));
    }
  }
  return byte_level ? text : parts_->decoder.decode(std::move(tokens));
}

int64_t Tokenizer::vocabulary() const { return int64_t(parts_->tokens.size()); }

std::optional<int32_t> Tokenizer::id(std::string_view token) const {
  const auto found = parts_->vocabulary.find(token);
  if (found == parts_->vocabulary.end()) return std::nullopt;
  return found->second;
}

const std::string& Tokenizer::token(int32_t id) const { return parts_->tokens.at(size_t(id)); }
const std::string& Tokenizer::bytes(int32_t id) const { return parts_->bytes.at(size_t(id)); }
bool Tokenizer::special(int32_t id) const { return parts_->special.at(size_t(id)); }
std::optional<int32_t> Tokenizer::begin() const { return parts_->begin; }
std::optional<int32_t> Tokenizer::end() const { return parts_->end; }
const std::string& Tokenizer::kind() const { return parts_->kind; }
const std::string& Tokenizer::hash() const { return parts_->hash; }

const std::vector<std::pair<std::string, std::string>>& Tokenizer::files() const {
  return parts_->files;
}

}  // namespace horner
