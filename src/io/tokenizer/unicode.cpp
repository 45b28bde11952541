#include "io/tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <new>

namespace horner {
namespace {

const utf8proc_uint8_t* pointer(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

bool in(int32_t value, int32_t first, int32_t last) { return value >= first && value <= last; }

}  // namespace

CodePoint code_point(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return {first, 1};
  utf8proc_int32_t value = -1;
  const auto size =
      utf8proc_iterate(pointer(text), static_cast<utf8proc_ssize_t>(text.size()), &value);
  return size > 0 ? CodePoint{value, static_cast<size_t>(size)} : CodePoint{-1, 1};
}

void append_utf8(std::string& text, int32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(code_point, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint next = code_point(text.substr(at));
    if (next.value < 0) break;
    at += next.size;
  }
  return at;
}

size_t other_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && code_point(text.substr(at)).value < 0) ++at;
  return at;
}

bool is_white_space(int32_t c) {
  return in(c, 9, 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         in(c, 0x2000, 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_mark(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_MN; }

bool is_control(int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: return true;
    default: return false;
  }
}

bool is_chinese(int32_t c) {
  return in(c, 0x4e00, 0x9fff) || in(c, 0x3400, 0x4dbf) || in(c, 0x20000, 0x2a6df) ||
         in(c, 0x2a700, 0x2b73f) || in(c, 0x2b740, 0x2b81f) || in(c, 0x2b920, 0x2ceaf) ||
         in(c, 0xf900, 0xfaff) || in(c, 0x2f800, 0x2fa1f);
}

bool is_word(int32_t c) {
  const auto category = utf8proc_category(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

int32_t lower_case(int32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return utf8proc_tolower(c);
}

std::string to_form(std::string_view text, Form form) {
  int options = UTF8PROC_STABLE;
  options |= form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  options |= form == Form::nfkc || form == Form::nfkd ? UTF8PROC_COMPAT : 0;
  std::string result;
  while (!text.empty()) {
    const size_t good = utf8_prefix(text);
    if (good > 0) {
      utf8proc_uint8_t* bytes = nullptr;
      const auto size = utf8proc_map(
          pointer(text),
          static_cast<utf8proc_ssize_t>(good),
          &bytes,
          static_cast<utf8proc_option_t>(options)
      );
      if (size < 0) throw std::bad_alloc();  // the only error left for valid UTF-8
      result.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
      std::free(bytes);  // NOLINT: utf8proc_map allocates with malloc
    }
    text.remove_prefix(good);
    const size_t bad = other_prefix(text);
    result += text.substr(0, bad);
    text.remove_prefix(bad);
  }
  return result;
}

std::string map_code_points(
    std::string_view text, const std::function<void(int32_t, std::string&)>& map
) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const CodePoint next = code_point(text);
    if (next.value < 0) {
      result += text.front();
    } else {
      map(next.value, result);
    }
    text.remove_prefix(next.size);
  }
  return result;
}

}  // namespace horner
