// Unicode as tokenizers need it, on top of utf8proc: small, maintained by the Julia project, and one
// archive without data files (ICU's are 30 MB). Bytes that are not UTF-8 pass through unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace horner {

struct CodePoint {
  int32_t value;  // -1: a byte that is not UTF-8
  size_t size;    // bytes
};
CodePoint code_point(std::string_view text);  // the first one; `text` is not empty
void append_utf8(std::string& text, int32_t code_point);

// Bytes at the beginning of `text` that are UTF-8, and bytes that are not.
size_t utf8_prefix(std::string_view text);
size_t other_prefix(std::string_view text);

bool is_white_space(int32_t code_point);  // White_Space
bool is_mark(int32_t code_point);         // Mn, what an accent becomes in NFD
bool is_control(int32_t code_point);      // Cc, Cf, Co
bool is_chinese(int32_t code_point);      // the blocks that BERT isolates
bool is_word(int32_t code_point);         // letters, digits, marks, _
int32_t lower_case(int32_t code_point);

enum class Form { nfc, nfd, nfkc, nfkd };
std::string to_form(std::string_view text, Form form);

// The text with each code point replaced by what `map` appends; other bytes are copied.
std::string map_code_points(
    std::string_view text, const std::function<void(int32_t, std::string&)>& map
);

}  // namespace horner
