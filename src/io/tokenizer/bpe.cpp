#include <algorithm>
#include <queue>

#include "core/check.h"
#include "io/tokenizer/model.h"
#include "io/tokenizer/unicode.h"

namespace horner {
namespace {

// The byte of each of GPT-2's characters: itself where it is printable, the others from 256 on.
std::unordered_map<int32_t, char> make_byte_alphabet() {
  std::unordered_map<int32_t, char> bytes;
  int32_t next = 256;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
                           (byte >= 0xae && byte <= 0xff);
    bytes[printable ? byte : next++] = static_cast<char>(byte);
  }
  return bytes;
}

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

std::optional<std::string> from_byte_alphabet(std::string_view token) {
  static const std::unordered_map<int32_t, char> alphabet = make_byte_alphabet();
  std::string bytes;
  while (!token.empty()) {
    const CodePoint next = code_point(token);
    const auto found = alphabet.find(next.value);
    if (found == alphabet.end()) return std::nullopt;
    bytes += found->second;
    token.remove_prefix(next.size);
  }
  return bytes;
}

std::optional<uint8_t> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c - 'A' + 10; };
  const int high = digit(token[3]), low = digit(token[4]);
  if (high < 0 || high > 15 || low < 0 || low > 15) return std::nullopt;
  return static_cast<uint8_t>(16 * high + low);
}

BpeModel::BpeModel(
    const Vocabulary& vocabulary,
    const std::vector<std::pair<std::string, std::string>>& merges,
    const BpeOptions& options
)
    : o_(options) {
  const auto id_of = [&](const std::string& token) {
    const auto found = vocabulary.find(token);
    return found == vocabulary.end() ? -1 : found->second;
  };
  for (const auto& [token, id] : vocabulary) {
    const auto bytes = o_.byte_level ? from_byte_alphabet(token) : std::optional(token);
    if (bytes) vocabulary_[*bytes] = id;
  }
  if (o_.unknown) {
    unknown_ = id_of(*o_.unknown);
    if (unknown_ < 0)
      throw DataError("model BPE: unk_token {} is no token", in_quotes(*o_.unknown));
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string fallback = fmt::format("<0x{:02X}>", byte);
    const std::string text(1, static_cast<char>(byte));
    const auto found = vocabulary_.find(o_.byte_level ? text : fallback);
    byte_ids_[byte] = found == vocabulary_.end() ? -1 : found->second;
    if (o_.byte_level && byte_ids_[byte] < 0) byte_ids_[byte] = unknown_;
  }
  for (const auto& [left, right] : merges) {
    const int32_t a = id_of(left), b = id_of(right), both = id_of(left + right);
    if (a < 0 || b < 0 || both < 0) {
      throw DataError(
          "model BPE: the merge {} {} is not of tokens", in_quotes(left), in_quotes(right)
      );
    }
    merges_.try_emplace(key_of(a, b), Merge{static_cast<int32_t>(merges_.size()), both});
  }
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<int32_t> BpeModel::symbols(std::string_view piece) const {
  std::vector<int32_t> ids;
  if (o_.byte_level) {
    for (const char c : piece) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0) ids.push_back(id);  // SmolLM2 lacks some control characters, which are left out
    }
    return ids;
  }
  bool after_unknown = false;
  while (!piece.empty()) {
    const std::string_view character = piece.substr(0, code_point(piece).size);
    piece.remove_prefix(character.size());
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
    const auto found = vocabulary_.find(character);
    bool known = found != vocabulary_.end();
    if (known) {
      ids.push_back(found->second);
    } else if (o_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char c) {
                 return byte_id(c) >= 0;
               })) {
      for (const char c : character) ids.push_back(byte_id(c));
      known = true;
    } else if (unknown_ < 0) {
      const std::string shown = in_quotes(std::string(character));
      throw DataError("the tokenizer has no token for {}, and none for the unknown", shown);
    } else if (!after_unknown || !o_.fuse_unknown) {
      ids.push_back(unknown_);
    }
    after_unknown = !known;
  }
  return ids;
}

void BpeModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (o_.ignore_merges) {
    const auto found = vocabulary_.find(piece);
    if (found != vocabulary_.end()) return ids.push_back(found->second);
  }
  std::vector<int32_t> symbol = symbols(piece);  // merged into the left one; -1: gone
  const auto n = static_cast<int32_t>(symbol.size());
  std::vector<int32_t> previous(symbol.size()), next(symbol.size());
  struct Candidate {
    int32_t rank, place, left, right, id;
    bool operator<(const Candidate& other) const {  // the queue gives the largest
      return std::tie(rank, place) > std::tie(other.rank, other.place);
    }
  };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t place) {
    if (place < 0 || next[size_t(place)] >= n) return;
    const int32_t left = symbol[size_t(place)], right = symbol[size_t(next[size_t(place)])];
    if (const Merge* merge = find_merge(left, right)) {
      queue.push({merge->rank, place, left, right, merge->id});
    }
  };
  for (int32_t i = 0; i < n; ++i) {
    previous[size_t(i)] = i - 1;
    next[size_t(i)] = i + 1;
  }
  for (int32_t i = 0; i < n; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const auto place = static_cast<size_t>(best.place);
    const int32_t gone = next[place];
    const bool valid = symbol[place] == best.left && gone < n && symbol[size_t(gone)] == best.right;
    if (!valid) continue;  // one of the two has been merged since
    symbol[place] = best.id;
    symbol[size_t(gone)] = -1;
    next[place] = next[size_t(gone)];
    if (next[place] < n) previous[size_t(next[place])] = best.place;
    consider(best.place);
    consider(previous[place]);
  }
  for (const int32_t id : symbol) {
    if (id >= 0) ids.push_back(id);
  }
}

}  // namespace horner
