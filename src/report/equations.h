// The equations of mixers on a page, typeset.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace horner {

struct NamedMixer {
  std::string name;  // that the page calls it by
  std::string spec;  // "gla:heads=2"
  int64_t D = 64;
};

// HTML, folded: each equation once, below the names of all that have it. What is no mixer of the list is left out.
std::string equations(const std::vector<NamedMixer>&);

}  // namespace horner
