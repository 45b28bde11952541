// A template cut into texts and tags, with Jinja's rules for white space as transformers sets them (trim_blocks, lstrip_blocks):
//
//   {{ expression }}   {% statement %}   {# comment #}
//   a new line right after %} or #} is dropped; spaces before {% or {# at the beginning of a line are dropped
//   {%- and -%} drop all white space on their side; {%+ and +%} drop none
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace horner::jinja {

struct Token {
  enum Kind {
    text,
    open_output,
    close_output,
    open_block,
    close_block,
    name,
    string,
    integer,
    real,
    sign,
    end
  };
  Kind kind = end;
  std::string value;
  int line = 1;
};

std::vector<Token> tokenize(std::string_view source);  // Mistake with its line

}  // namespace horner::jinja
