// Regular expressions of a tokenizer.json, by PCRE2. They are written for Oniguruma. An escape that means something else
// there is rewritten, or refused.
//
//   \s \S    White_Space          \w    Alphabetic, M, Nd, Pc          \d    Nd
//   \W in a class, a class in a class, \h \H \K \R \X \G \C \Q \E (*: refused
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace horner {

class Regex {
 public:
  explicit Regex(const std::string& pattern);  // DataError when it is not a pattern

  struct Match {
    size_t begin, end;
  };
  // The first non-empty match in text[from ..]; `text` is UTF-8. DataError when it is too costly.
  bool next(std::string_view text, size_t from, Match& match) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

std::string escaped(std::string_view literal);  // a pattern that matches only this text

}  // namespace horner
