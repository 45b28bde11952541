// What one stream remembers: keys and values of softmax layers in pages of 256 tokens, and the state of all other layers, whose
// size does not grow.
//
//   a page       for each layer, for each key/value head: keys (16 blocks, K, 16 tokens), then values (256 tokens, V)
//
// Halves, or fp32 for models in fp32; V is padded to a multiple of 16. Keys of 16 tokens lie side by side, so that 16 scores are one vector.
// Forks share pages. A slot of a shared page is written once: the first stream that goes on inside it writes there, since the
// others do not read so far; the second one copies it first. A state is copied by the first that goes on. A rollback
// of pages is a smaller length; a stream with a state cannot go back, so its owner keeps forks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace horner {

inline constexpr int64_t kPage = 256;  // tokens

struct CacheShape {
  struct Layer {
    int64_t G, K, V;  // V padded
    int64_t begin;    // of its first head in a page, in numbers
    int64_t keys(int64_t g) const { return begin + g * kPage * (K + V); }
    int64_t values(int64_t g) const { return keys(g) + kPage * K; }
  };
  std::vector<Layer> layers;
  int64_t numbers = 0;  // of a page
  bool wide = false;    // fp32
  int64_t state_bytes = 0;

  int64_t page_bytes() const { return numbers * (wide ? 4 : 2); }
  int64_t token_bytes() const { return page_bytes() / kPage; }

  void add(int64_t G, int64_t K, int64_t V);  // G = 0: a layer without pages
};

class Pages {
 public:
  int64_t length() const { return length_; }
  // Room for tokens `length()` to `length() + tokens` that no other stream reads or writes.
  void reserve(const CacheShape& shape, int64_t tokens);
  void advance(int64_t tokens) { length_ += tokens; }
  void roll_back(int64_t length);  // to fewer tokens; pages stay for later

  std::byte* page(int64_t index) const { return pages_[size_t(index)].get(); }
  const std::vector<std::shared_ptr<std::byte>>& pages() const { return pages_; }
  std::byte* state() const { return state_.get(); }  // null before the first token

 private:
  std::vector<std::shared_ptr<std::byte>> pages_;
  std::vector<std::shared_ptr<int64_t>>
      written_;  // slots of each page, by all streams that share it
  std::shared_ptr<std::byte> state_;
  int64_t length_ = 0;
};

}  // namespace horner
