// Regular expressions as automata. The whole text must match.
//
//   a|b  ab  (a)  (?:a)  (?<name>a)  a* a+ a? a{2} a{2,} a{2,5}, each also lazy  .  [a-z]  [^a-z]
//   \d \D \w \W \s \S (ASCII)  \n \r \t \f \v \0  \x41  \u0041  and \ before a sign
//
// `.` is any character but \n \r U+2028 U+2029. ^ and $ may stand at the ends of a top-level alternative. Anything else (back
// references, looking around, flags, \b, \p) is refused with its place.
#pragma once

#include <string_view>

#include "model/grammar/nfa.h"

namespace horner::grammar {

enum class Coding {
  plain,       // UTF-8
  json_string  // the inside of a JSON string: "\n" is written \n
};
enum class Search {
  whole,   // the text is a match
  inside,  // the text has a match in it: "pattern" of JSON Schema. ^ and $ tie it to the ends
};

// Adds the pattern between two states. UsageError that starts with the place: "character 3: ..".
void add_regex(
    Nfa& nfa, int32_t from, std::string_view pattern, Coding coding, Search search, int32_t to
);

}  // namespace horner::grammar
