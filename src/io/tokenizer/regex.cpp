#include "io/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/check.h"
#include "io/tokenizer/spec.h"
#include "io/tokenizer/unicode.h"

namespace horner {
namespace {

constexpr char kWord[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr uint32_t kMatchLimit = 1'000'000;  // steps of backtracking

// A pattern with groups that repeat needs more than the 32 KiB of PCRE2's default stack.
pcre2_jit_stack* jit_stack(void*) {
  thread_local const std::unique_ptr<pcre2_jit_stack, void (*)(pcre2_jit_stack*)> stack(
      pcre2_jit_stack_create(1 << 15, 1 << 23, nullptr), pcre2_jit_stack_free
  );
  return stack.get();
}

[[noreturn]] void refuse(const std::string& pattern, std::string_view what) {
  throw DataError("pattern {}: {} is not supported", in_quotes(pattern), what);
}

std::string escape_of(const std::string& pattern, char letter, bool in_class) {
  switch (letter) {
    case 's': return "\\p{White_Space}";
    case 'S': return "\\P{White_Space}";
    case 'd': return "\\p{Nd}";
    case 'D': return "\\P{Nd}";
    case 'w': return in_class ? kWord : fmt::format("[{}]", kWord);
    case 'W':
      if (!in_class) return fmt::format("[^{}]", kWord);
      [[fallthrough]];
    case 'h':
    case 'H':
    case 'K':
    case 'R':
    case 'X':
    case 'G':
    case 'C':
    case 'Q':
    case 'E': refuse(pattern, fmt::format("\\{}", letter));
    default: return {'\\', letter};
  }
}

// Oniguruma's pattern as PCRE2's.
std::string translate(const std::string& pattern) {
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      result += escape_of(pattern, pattern[++i], in_class);
      continue;
    }
    if (in_class) {
      if (c == '[') refuse(pattern, "a class in a class");
      if (c == '&' && pattern.compare(i, 2, "&&") == 0) refuse(pattern, "&& in a class");
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      result += c;
      if (pattern.compare(i + 1, 1, "^") == 0) result += pattern[++i];
      if (pattern.compare(i + 1, 1, "]") == 0) refuse(pattern, "] first in a class");
      continue;
    } else if (c == '(' && pattern.compare(i + 1, 1, "*") == 0) {
      refuse(pattern, "(*");
    }
    result += c;
  }
  return result;
}

}  // namespace

struct Regex::Code {
  ~Code() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }
  std::string pattern;
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
};

Regex::Regex(const std::string& pattern) {
  const auto made = std::make_shared<Code>();
  made->pattern = pattern;
  const std::string text = translate(pattern);
  int error = 0;
  PCRE2_SIZE place = 0;
  made->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(text.data()),
      text.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
      &error,
      &place,
      nullptr
  );
  if (!made->code) {
    PCRE2_UCHAR message[200];
    pcre2_get_error_message(error, message, sizeof message);
    throw DataError("pattern {}: {}", in_quotes(pattern), reinterpret_cast<const char*>(message));
  }
  pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE);  // where it cannot, the pattern is interpreted
  made->context = pcre2_match_context_create(nullptr);
  if (!made->context) throw std::bad_alloc();
  pcre2_jit_stack_assign(made->context, jit_stack, nullptr);
  pcre2_set_match_limit(made->context, kMatchLimit);
  code_ = made;
}

bool Regex::next(std::string_view text, size_t from, Match& match) const {
  thread_local const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free
  );
  while (from < text.size()) {
    const int status = pcre2_match(
        code_->code,
        reinterpret_cast<PCRE2_SPTR>(text.data()),
        text.size(),
        from,
        PCRE2_NO_UTF_CHECK,
        data.get(),
        code_->context
    );
    if (status == PCRE2_ERROR_NOMATCH) return false;
    if (status < 0) {
      throw DataError(
          "pattern {}: too costly to match (PCRE2 {})", in_quotes(code_->pattern), status
      );
    }
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(data.get());
    match = {place[0], place[1]};
    if (match.end > match.begin) return true;
    if (match.begin >= text.size()) return false;
    from = match.begin + code_point(text.substr(match.begin)).size;
  }
  return false;
}

std::string escaped(std::string_view literal) {
  std::string pattern;
  for (const char c : literal) {
    const bool plain = (c & 0x80) != 0 || std::isalnum(static_cast<unsigned char>(c)) || c == ' ' ||
                       c == '\n' || c == '\t';
    if (!plain) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace horner
