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
  const int64_t end = length_ + tokens;
  for (int64_t first = length_ / kPage * kPage; first < end; first += kPage) {
    const auto i = size_t(first / kPage);
    const int64_t from = std::max<int64_t>(0, length_ - first), to = std::min(kPage, end - first);
    const bool missing = i >= pages_.size();
    const bool free = !missing && (*written_[i] <= from || pages_[i].use_count() == 1);
    if (!free) {
      const std::shared_ptr<std::byte> own = huge_memory(size_t(shape.page_bytes()));
      if (from > 0) std::copy_n(pages_[i].get(), shape.page_bytes(), own.get());
      if (missing) pages_.emplace_back(), written_.emplace_back();
      pages_[i] = own, written_[i] = std::make_shared<int64_t>();
    }
    *written_[i] = to;
  }
}

}  // namespace horner
