// Which tokens may follow, so that a text matches a grammar (model/grammar/grammar.h).
//
//   const auto trie = std::make_shared<const TokenTrie>(tokenizer);             // once
//   TokenMask mask(trie, grammar::regex_grammar("[0-9]+"));
//   TokenMask::Place place = mask.start();
//   mask.allowed(place, bits);                                                  // bit i: token i may come next
//   mask.advance(place, token);
//
// A token is a string of bytes, and its bytes lead through the grammar. The tokens that a place allows are found by one walk
// through the trie of all tokens, which leaves a branch where the grammar does, and are kept for the next time. Special tokens
// are never allowed: what ends a text is for the caller to add where `complete` holds.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "io/tokenizer.h"
#include "model/grammar/grammar.h"

namespace horner {

// The bytes of all tokens of a tokenizer as a tree, in the order of a walk.
class TokenTrie {
 public:
  explicit TokenTrie(const Tokenizer& tokenizer);

  struct Node {
    uint8_t byte,
        depth;  // depth of the first byte of a token: 0; tokens of more than 255 bytes are left out
    int32_t skip;    // the node after this one and all that go on from it
    int32_t tokens;  // those that end here are ids()[tokens] .. before those of the next node
  };
  const std::vector<Node>& nodes() const { return nodes_; }  // the last one is a sentinel
  const std::vector<int32_t>& ids() const { return ids_; }
  std::string_view bytes(int32_t token) const;  // empty: never allowed
  int64_t vocabulary() const { return int64_t(ends_.size()); }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> ids_;
  std::string text_;  // of all tokens
  std::vector<int64_t> ends_;
};

// Several texts, also of several threads, may share a mask.
class TokenMask {
 public:
  // What was computed is kept up to about `cache_bytes`; then it starts anew.
  TokenMask(
      std::shared_ptr<const TokenTrie> trie,
      grammar::Grammar grammar,
      int64_t cache_bytes = 16 << 20
  );

  // Where a text is.
  class Place {
   public:
    bool complete() const { return grammar::complete(readings_); }    // the text may end here
    bool can_go_on() const { return grammar::can_go_on(readings_); }  // more bytes may follow

   private:
    friend class TokenMask;
    grammar::Readings readings_;
    int32_t node_ = 0;
    int64_t round_ = -1;
  };

  Place start() const;
  // One bit for each token of the tokenizer, in words of 64. No bit is set if no token fits: only in a tokenizer without a
  // token for each byte.
  void allowed(Place& place, std::vector<uint64_t>& bits) const;
  // The token must be allowed; otherwise the place stays and false is returned.
  bool advance(Place& place, int32_t token) const;
  bool advance(Place& place, std::string_view bytes) const;

 private:
  struct Node {
    grammar::Readings readings;
    std::vector<uint64_t> bits;  // empty: not computed yet
  };
  struct ReadingsHash {
    size_t operator()(const grammar::Readings& readings) const;
  };
  int32_t node_of(grammar::Readings readings) const;
  int32_t next(int32_t node, uint8_t byte) const;
  void find(Place& place) const;
  std::vector<uint64_t> walk(int32_t node) const;

  const std::shared_ptr<const TokenTrie> trie_;
  const grammar::Grammar grammar_;
  const int64_t cache_bytes_;
  mutable std::mutex mutex_;  // of all that follows: a cache
  mutable std::vector<Node> nodes_;
  mutable std::vector<int32_t> next_;  // (node, class of a byte): node; kNew, kNone
  mutable std::unordered_map<grammar::Readings, int32_t, ReadingsHash> ids_;
  mutable int64_t bytes_ = 0, round_ = 0;
};

}  // namespace horner
