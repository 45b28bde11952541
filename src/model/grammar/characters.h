// Sets of characters (code points of Unicode without surrogates), as sorted ranges that do not touch.
#pragma once

#include <cstdint>
#include <vector>

namespace horner::grammar {

struct CharacterRange {
  int32_t first, last;
  bool operator==(const CharacterRange&) const = default;
};

class Characters {
 public:
  Characters() = default;
  Characters(std::vector<CharacterRange> ranges);  // in any order; surrogates are left out
  static Characters all() { return Characters({{0, 0x10ffff}}); }

  Characters with(const Characters& more) const;
  Characters without(const Characters& less) const;
  bool has(int32_t character) const;
  const std::vector<CharacterRange>& ranges() const { return ranges_; }
  bool operator==(const Characters&) const = default;

 private:
  std::vector<CharacterRange> ranges_;
};

}  // namespace horner::grammar
