#include "engine/cpu/pages.h"

#include <algorithm>

#include "core/check.h"
#include "core/huge_memory.h"

namespace horner {

void CacheShape::add(int64_t G, int64_t K, int64_t V) {
  const int64_t padded = (V + 15) / 16 * 16;
  layers.push_back({G, K, padded, numbers});
  numbers += G * kPage * (K + padded);
}

void Pages::roll_back(int64_t length) {
  HORNER_CHECK(!state_, "[pages] a stream with a state cannot go back: it has forgotten tokens");
  length_ = length;
}

void Pages::reserve(const CacheShape& shape, int64_t tokens) {
  if (shape.state_bytes > 0 && state_.use_count() != 1) {
    const std::shared_ptr<std::byte> own = huge_memory(size_t(shape.state_bytes));
    if (state_) std::copy_n(state_.get(), shape.state_bytes, own.get());
    state_ = own;
  }
  if (shape.numbers == 0) return;
  const size_t needed = size_t((length_ + tokens + kPage - 1) / kPage);
  for (size_t i = size_t(length_ / kPage); i < needed; ++i) {
    const bool missing = i >= pages_.size();
    if (!missing && pages_[i].use_count() == 1) continue;
    const std::shared_ptr<std::byte> own = huge_memory(size_t(shape.page_bytes()));
    if (missing) {
      pages_.push_back(own);
    } else {
      std::copy_n(pages_[i].get(), shape.page_bytes(), own.get());
      pages_[i] = own;
    }
  }
}

}  // namespace horner
