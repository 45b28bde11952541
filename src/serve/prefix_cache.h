// States of streams by the tokens that they have read: a prompt goes on from the longest one that it begins with.
//
//   prompt   a b c d e f        states   [a b]   [a b c d]   [a x]        goes on from [a b c d], reads e f
//
// Prefixes are found by a hash of each length and then compared. The least recently used states go first when all of
// them together hold more than the limit; memory that they share counts once.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/runner.h"

namespace horner {

class PrefixCache {
 public:
  PrefixCache(Runner& runner, int64_t limit_bytes) : runner_(runner), limit_(limit_bytes) {}

  struct Found {
    int64_t tokens = 0;  // 0: nothing is known
    std::unique_ptr<StreamState> state;
  };
  // The longest known prefix of at most `most` tokens, with a state of its own.
  Found find(std::span<const int32_t> tokens, int64_t most);

  bool contains(std::span<const int32_t> tokens) const;
  void add(std::span<const int32_t> tokens, std::unique_ptr<StreamState> state);
  void clear();

  int64_t states() const { return int64_t(entries_.size()); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::vector<int32_t> tokens;
    uint64_t hash;
    std::unique_ptr<StreamState> state;
  };
  struct Memory {
    int64_t states = 0, bytes = 0;
  };
  using Place = std::list<Entry>::iterator;
  static uint64_t hash_of(std::span<const int32_t> tokens);
  Place at(uint64_t hash, std::span<const int32_t> tokens);
  void count(const Entry& entry);  // its memory
  void drop_last();

  Runner& runner_;
  const int64_t limit_;
  std::list<Entry> entries_;  // the last used first
  std::unordered_multimap<uint64_t, Place> places_;
  std::unordered_map<const void*, Memory> memory_;  // that the states hold, by its address
  int64_t bytes_ = 0;                               // of all of it, and of the tokens
};

}  // namespace horner
