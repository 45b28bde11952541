#include "model/grammar/characters.h"

#include <algorithm>

namespace horner::grammar {
namespace {

constexpr CharacterRange kSurrogates = {0xd800, 0xdfff};

// `from` less `what`.
std::vector<CharacterRange> cut(
    const std::vector<CharacterRange>& from, const std::vector<CharacterRange>& what
) {
  std::vector<CharacterRange> rest = from;
  for (const CharacterRange& hole : what) {
    std::vector<CharacterRange> next;
    for (const CharacterRange& range : rest) {
      if (range.first < hole.first)
        next.push_back({range.first, std::min(range.last, hole.first - 1)});
      if (range.last > hole.last)
        next.push_back({std::max(range.first, hole.last + 1), range.last});
    }
    rest = std::move(next);
  }
  return rest;
}

}  // namespace

Characters::Characters(std::vector<CharacterRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const CharacterRange& a, const CharacterRange& b) {
    return a.first < b.first;
  });
  std::vector<CharacterRange> joined;
  for (const CharacterRange& range : ranges) {
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  ranges_ = cut(joined, {kSurrogates});
}

Characters Characters::with(const Characters& more) const {
  std::vector<CharacterRange> ranges = ranges_;
  ranges.insert(ranges.end(), more.ranges_.begin(), more.ranges_.end());
  return Characters(std::move(ranges));
}

Characters Characters::without(const Characters& less) const {
  return Characters(cut(ranges_, less.ranges_));
}

bool Characters::has(int32_t character) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const CharacterRange& range) {
    return range.first <= character && character <= range.last;
  });
}

}  // namespace horner::grammar
