#include "model/token_mask.h"

#include <algorithm>
#include <numeric>

namespace horner {
namespace {

constexpr int32_t kNone = -1, kNew = -2;  // no text goes on so; not computed yet

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  const auto V = size_t(tokenizer.vocabulary());
  for (size_t id = 0; id < V; ++id) {
    const auto token = int32_t(id);
    if (!tokenizer.special(token) && tokenizer.bytes(token).size() < 256)
      text_ += tokenizer.bytes(token);
    ends_.push_back(int64_t(text_.size()));
  }
  std::vector<int32_t> sorted(V);
  std::iota(sorted.begin(), sorted.end(), 0);
  std::erase_if(sorted, [&](int32_t id) { return bytes(id).empty(); });
  std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
    return bytes(a) < bytes(b);
  });
  std::vector<size_t> path;  // nodes of the last token
  std::string_view last;
  for (const int32_t id : sorted) {
    const std::string_view now = bytes(id);
    const auto common = size_t(
        std::mismatch(last.begin(), last.end(), now.begin(), now.end()).first - last.begin()
    );
    for (size_t i = common; i < path.size(); ++i) nodes_[path[i]].skip = int32_t(nodes_.size());
    path.resize(common);
    for (size_t i = common; i < now.size(); ++i) {
      path.push_back(nodes_.size());
      nodes_.push_back({uint8_t(now[i]), uint8_t(i), 0, int32_t(ids_.size())});
    }
    ids_.push_back(id);
    last = now;
  }
  for (const size_t node : path) nodes_[node].skip = int32_t(nodes_.size());
  nodes_.push_back({0, 0, 0, int32_t(ids_.size())});
}

std::string_view TokenTrie::bytes(int32_t token) const {
  const int64_t begin = token == 0 ? 0 : ends_[size_t(token) - 1];
  return std::string_view(text_).substr(size_t(begin), size_t(ends_[size_t(token)] - begin));
}

TokenMask::TokenMask(
    std::shared_ptr<const TokenTrie> trie, grammar::Grammar grammar, int64_t cache_bytes
)
    : trie_(std::move(trie)), grammar_(std::move(grammar)), cache_bytes_(cache_bytes) {}

size_t TokenMask::ReadingsHash::operator()(const grammar::Readings& readings) const {
  const auto* const bytes = reinterpret_cast<const char*>(readings.data());
  return std::hash<std::string_view>()({bytes, readings.size() * sizeof(int32_t)});
}

TokenMask::Place TokenMask::start() const {
  Place place;
  place.readings_ = grammar::first_readings(grammar_);
  return place;
}

int32_t TokenMask::node_of(grammar::Readings readings) const {
  const auto [found, is_new] = ids_.emplace(std::move(readings), int32_t(nodes_.size()));
  if (is_new) {
    nodes_.push_back({found->first, {}});
    next_.resize(next_.size() + size_t(grammar_.class_count), kNew);
    bytes_ += 128 + 4 * (int64_t(found->first.size()) * 2 + grammar_.class_count);
  }
  return found->second;
}

int32_t TokenMask::next(int32_t node, uint8_t byte) const {
  const size_t entry = size_t(node) * size_t(grammar_.class_count) + grammar_.classes[byte];
  if (next_[entry] != kNew) return next_[entry];
  grammar::Readings after = grammar::after(grammar_, nodes_[size_t(node)].readings, byte);
  const int32_t found = after.empty() ? kNone : node_of(std::move(after));
  return next_[entry] = found;
}

// The cache's node of the place.
void TokenMask::find(Place& place) const {
  if (bytes_ > cache_bytes_) {
    nodes_.clear();
    next_.clear();
    ids_.clear();
    bytes_ = 0;
    ++round_;
  }
  if (place.round_ == round_) return;
  place.node_ = node_of(place.readings_);
  place.round_ = round_;
}

std::vector<uint64_t> TokenMask::walk(int32_t node) const {
  std::vector<uint64_t> bits(size_t(trie_->vocabulary() + 63) / 64);
  const std::vector<TokenTrie::Node>& nodes = trie_->nodes();
  std::array<int32_t, 257> path;  // the cache's nodes before each byte of the branch
  path[0] = node;
  for (size_t at = 0; at + 1 < nodes.size();) {
    const TokenTrie::Node& now = nodes[at];
    const int32_t to = next(path[now.depth], now.byte);
    if (to == kNone) {
      at = size_t(now.skip);
      continue;
    }
    path[size_t(now.depth) + 1] = to;
    ++at;
    // The tokens of a branch's inner nodes come before those of the nodes after it.
    for (int32_t i = now.tokens; i < nodes[at].tokens; ++i) {
      const auto id = size_t(trie_->ids()[size_t(i)]);
      bits[id / 64] |= uint64_t(1) << id % 64;
    }
  }
  return bits;
}

void TokenMask::allowed(Place& place, std::vector<uint64_t>& bits) const {
  const std::lock_guard lock(mutex_);
  find(place);
  if (nodes_[size_t(place.node_)].bits.empty()) {
    std::vector<uint64_t> made = walk(place.node_);
    bytes_ += int64_t(made.size() * sizeof(uint64_t));
    nodes_[size_t(place.node_)].bits = std::move(made);
  }
  bits = nodes_[size_t(place.node_)].bits;
}

bool TokenMask::advance(Place& place, int32_t token) const {
  if (token < 0 || token >= trie_->vocabulary() || trie_->bytes(token).empty()) return false;
  return advance(place, trie_->bytes(token));
}

bool TokenMask::advance(Place& place, std::string_view bytes) const {
  const std::lock_guard lock(mutex_);
  find(place);
  int32_t node = place.node_;
  for (const char byte : bytes) {
    node = next(node, uint8_t(byte));
    if (node == kNone) return false;
  }
  place.node_ = node;
  place.readings_ = nodes_[size_t(node)].readings;
  return true;
}

}  // namespace horner
