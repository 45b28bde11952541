#include "serve/prefix_cache.h"

#include <algorithm>

namespace horner {
namespace {

constexpr uint64_t kEmpty = 0x9e3779b97f4a7c15;

uint64_t extended(uint64_t hash, int32_t token) {  // the finaliser of SplitMix64
  hash = (hash ^ uint32_t(token)) + kEmpty;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace

uint64_t PrefixCache::hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = kEmpty;
  for (const int32_t token : tokens) hash = extended(hash, token);
  return hash;
}

PrefixCache::Place PrefixCache::at(uint64_t hash, std::span<const int32_t> tokens) {
  const auto [first, last] = places_.equal_range(hash);
  for (auto place = first; place != last; ++place) {
    const std::vector<int32_t>& own = place->second->tokens;
    if (std::equal(own.begin(), own.end(), tokens.begin(), tokens.end())) return place->second;
  }
  return entries_.end();
}

PrefixCache::Found PrefixCache::find(std::span<const int32_t> tokens, int64_t most) {
  tokens = tokens.first(std::min(tokens.size(), size_t(std::max<int64_t>(most, 0))));
  std::vector<uint64_t> hashes = {kEmpty};
  for (const int32_t token : tokens) hashes.push_back(extended(hashes.back(), token));
  for (size_t n = tokens.size(); n > 0; --n) {
    const Place found = at(hashes[n], tokens.first(n));
    if (found == entries_.end()) continue;
    entries_.splice(entries_.begin(), entries_, found);
    return {int64_t(n), runner_.fork(*found->state)};
  }
  return {};
}

bool PrefixCache::contains(std::span<const int32_t> tokens) const {
  auto& self = const_cast<PrefixCache&>(*this);
  return self.at(hash_of(tokens), tokens) != self.entries_.end();
}

void PrefixCache::add(std::span<const int32_t> tokens, std::unique_ptr<StreamState> state) {
  const uint64_t hash = hash_of(tokens);
  if (const Place known = at(hash, tokens); known != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, known);
    return;
  }
  entries_.push_front({{tokens.begin(), tokens.end()}, hash, std::move(state)});
  places_.emplace(hash, entries_.begin());
  count(entries_.front());
  while (bytes_ > limit_) drop_last();
}

void PrefixCache::count(const Entry& entry) {
  bytes_ += int64_t(entry.tokens.size() * sizeof(int32_t));
  runner_.for_memory(*entry.state, [&](const void* address, int64_t bytes) {
    Memory& memory = memory_[address];
    if (memory.states++ > 0) return;
    memory.bytes = bytes;
    bytes_ += bytes;
  });
}

void PrefixCache::drop_last() {
  const Place last = std::prev(entries_.end());
  bytes_ -= int64_t(last->tokens.size() * sizeof(int32_t));
  runner_.for_memory(*last->state, [&](const void* address, int64_t) {
    const auto memory = memory_.find(address);
    if (--memory->second.states > 0) return;
    bytes_ -= memory->second.bytes;
    memory_.erase(memory);
  });
  const auto [first, end] = places_.equal_range(last->hash);
  places_.erase(std::find_if(first, end, [&](const auto& p) { return p.second == last; }));
  entries_.erase(last);
}

void PrefixCache::clear() {
  entries_.clear();
  places_.clear();
  memory_.clear();
  bytes_ = 0;
}

}  // namespace horner
