#include "report/rich_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "report/svg.h"

namespace horner {
namespace {

size_t digits(std::string_view text, size_t from) {
  size_t n = 0;
  while (from + n < text.size() && text[from + n] >= '0' && text[from + n] <= '9') ++n;
  return n;
}

// "2512.11784" at `from`: how many letters it has; 0: it is no number of arXiv.
size_t arxiv_number(std::string_view text, size_t from) {
  if (digits(text, from) != 4 || from + 4 >= text.size() || text[from + 4] != '.') return 0;
  const size_t rest = digits(text, from + 5);
  return rest == 4 || rest == 5 ? 5 + rest : 0;
}

// Whether a line may end here, inside of "taylor:order=4,norm=l2".
bool may_break(std::string_view text, size_t i) {
  return (text[i] == ':' || text[i] == ',') && i + 1 < text.size() && text[i + 1] >= 'a' &&
         text[i + 1] <= 'z';
}

// Without the powers, which are raised already.
std::string linked(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (const size_t n = text.compare(i, 6, "arXiv:") == 0 ? arxiv_number(text, i + 6) : 0) {
      const std::string number = text.substr(i + 6, n);
      out += fmt::format(R"(<a href="https://arxiv.org/abs/{0}">arXiv:{0}</a>)", number);
      i += 6 + n;
    } else {
      out += text[i];
      if (may_break(text, i++)) out += "<wbr>";
    }
  }
  return out;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether no line may end at the space text[i]: "9 %", "4 KiB", "T = 64", around a "±".
bool holds_together(std::string_view text, size_t i) {
  const std::string_view left = text.substr(0, i), right = text.substr(i + 1);
  if (left.ends_with("±") || right.starts_with("±")) return true;
  if (left.empty() || right.empty()) return false;
  if (left.back() >= '0' && left.back() <= '9') {
    for (const std::string_view unit : {"%", "KiB", "MiB", "GiB"}) {
      if (right.starts_with(unit)) return true;
    }
  }
  const bool before = right.starts_with("= ") && is_letter(left.back()) &&
                      (left.size() == 1 || !is_letter(left[left.size() - 2]));
  const bool after = left.ends_with(" =") && left.size() > 2 && is_letter(left[left.size() - 3]) &&
                     (left.size() == 3 || !is_letter(left[left.size() - 4]));
  return before || after;
}

std::string unbroken(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' && holds_together(text, i))
      out += "\u00a0";
    else
      out += text[i];
  }
  return out;
}

}  // namespace

std::string flags_whole(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    std::string word = escape(text.substr(at, end - at));
    for (size_t i = 0; (i = word.find(',', i)) != std::string::npos; i += 6)
      word.insert(i + 1, "<wbr>");
    out += word.starts_with("-") ? "<span>" + word + "</span>" : word;
    if (end < text.size()) out += text[end];
    at = end + 1;
  }
  return out;
}

std::string raised(const std::string& text) {
  constexpr const char* kDigits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t minus = text.compare(i, 2, "^-") == 0 ? 1 : 0;
    const size_t n = text[i] == '^' ? digits(text, i + 1 + minus) : 0;
    if (n == 0) {
      out += text[i++];
      continue;
    }
    if (minus == 1) out += "⁻";
    for (size_t d = i + 1 + minus; d < i + 1 + minus + n; ++d) out += kDigits[text[d] - '0'];
    i += 1 + minus + n;
  }
  return out;
}

std::string rich(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('`', at);
    const size_t close = open == std::string::npos ? open : text.find('`', open + 1);
    const size_t end = close == std::string::npos ? text.size() : open;
    out += linked(escape(unbroken(raised(text.substr(at, end - at)))));
    if (close == std::string::npos) break;
    out += "<code>" + flags_whole(text.substr(open + 1, close - open - 1)) + "</code>";
    at = close + 1;
  }
  return out;
}

}  // namespace horner
