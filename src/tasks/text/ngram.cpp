#include "tasks/text/ngram.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/check.h"

namespace horner {
namespace {

// Counts by key in one array with open addressing; a key is never 0.
class Counts {
 public:
  Counts() : slots_(1 << 16) {}

  uint32_t& at(uint64_t key) {
    if (2 * used_ > slots_.size()) grow();
    Slot& slot = find(slots_, key);
    if (slot.key == 0) {
      slot.key = key;
      ++used_;
    }
    return slot.count;
  }
  uint32_t get(uint64_t key) const {
    return find(const_cast<std::vector<Slot>&>(slots_), key).count;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t count = 0;
  };
  static Slot& find(std::vector<Slot>& slots, uint64_t key) {
    const size_t mask = slots.size() - 1;
    size_t at = (key * 0x9e3779b97f4a7c15u) >> 20 & mask;
    while (slots[at].key != 0 && slots[at].key != key) at = (at + 1) & mask;
    return slots[at];
  }
  void grow() {
    std::vector<Slot> larger(slots_.size() * 4);
    for (const Slot& slot : slots_) {
      if (slot.key != 0) find(larger, slot.key) = slot;
    }
    slots_ = std::move(larger);
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

// The k bytes before place i as one number, with a 1 in front that tells orders apart.
uint64_t context_of(std::string_view text, size_t i, int k) {
  uint64_t key = 1;
  for (int j = k; j > 0; --j) key = key << 8 | static_cast<uint8_t>(text[i - size_t(j)]);
  return key;
}

}  // namespace

std::vector<double> ngram_bits(std::string_view train, std::string_view test, int order) {
  HORNER_CHECK(order >= 0 && order <= 6, "[ngram] order must be from 0 to 6, got {}", order);
  Counts followed, followers, pairs;  // c(h), d(h), c(h b)
  for (size_t i = 0; i < train.size(); ++i) {
    for (int k = 0; k <= order && size_t(k) <= i; ++k) {
      const uint64_t h = context_of(train, i, k);
      ++followed.at(h);
      if (++pairs.at(h << 8 | static_cast<uint8_t>(train[i])) == 1) ++followers.at(h);
    }
  }
  std::vector<double> bits(static_cast<size_t>(order) + 1);
  for (size_t i = 0; i < test.size(); ++i) {
    double p = 1.0 / 256;
    for (int k = 0; k <= order; ++k) {
      if (size_t(k) <= i) {
        const uint64_t h = context_of(test, i, k);
        const double c = followed.get(h), d = followers.get(h);
        const double both = pairs.get(h << 8 | static_cast<uint8_t>(test[i]));
        if (c > 0) p = (both + d * p) / (c + d);  // an unseen h leaves P_{k-1}
      }
      bits[size_t(k)] -= std::log2(p);
    }
  }
  for (double& value : bits) value /= double(std::max<size_t>(test.size(), 1));
  return bits;
}

}  // namespace horner
