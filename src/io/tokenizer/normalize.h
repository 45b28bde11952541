// Normalisers of a tokenizer.json: steps from text to text.
//
//   NFC NFD NFKC NFKD   Unicode's forms            Prepend   before a text that is not empty
//   Lowercase           each code point            Replace   a literal or a pattern
//   StripAccents        drops Mn                   Strip     white space at the ends
//   BertNormalizer      drops control characters, isolates Chinese ones, drops accents, lower case
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/tokenizer/spec.h"

namespace horner {

using TextStep = std::function<std::string(const std::string&)>;

std::vector<TextStep> read_normalizer(const Object* json);  // null: none

struct BertNormalizer {
  bool clean_text = true, chinese = true, strip_accents = true, lowercase = true;
  std::string operator()(const std::string& text) const;
};

// A step that replaces every match of "pattern": {"String": …} or {"Regex": …} by "content".
TextStep read_replace(Spec& spec);

std::string strip(std::string_view text, bool left, bool right);  // white space

}  // namespace horner
