#include <array>

#include "io/tokenizer/parts.h"
#include "io/tokenizer/unicode.h"

namespace horner {
namespace {

bool ends_in_word(std::string_view text) {
  size_t size = 1;
  while (size < 4 && size < text.size() && (text[text.size() - size] & 0xc0) == 0x80) ++size;
  return !text.empty() && is_word(code_point(text.substr(text.size() - size)).value);
}

bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word(code_point(text).value);
}

}  // namespace

std::string normalized_text(const std::vector<TextStep>& steps, std::string text) {
  const size_t before = text.size();
  for (const TextStep& step : steps) {
    text = step(text);
    check_growth(before, text.size());
  }
  return text;
}

void each_added(
    std::string_view text,
    const std::vector<const AddedToken*>& tokens,
    const std::function<void(std::string_view part, const AddedToken* token)>& call
) {
  std::array<std::vector<const AddedToken*>, 256> by_first;
  for (const AddedToken* token : tokens) {
    if (!token->content.empty()) by_first[static_cast<uint8_t>(token->content[0])].push_back(token);
  }
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* best = nullptr;
    for (const AddedToken* token : by_first[static_cast<uint8_t>(text[at])]) {
      const bool longer = !best || token->content.size() > best->content.size();
      if (longer && text.substr(at).starts_with(token->content)) best = token;
    }
    if (!best) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + best->content.size();
    at = end;
    const bool in_word = ends_in_word(text.substr(0, begin)) || begins_with_word(text.substr(end));
    if (best->single_word && in_word) continue;
    if (best->lstrip) begin = done + strip(text.substr(done, begin - done), false, true).size();
    while (best->rstrip && end < text.size() && is_white_space(code_point(text.substr(end)).value)
    ) {
      end += code_point(text.substr(end)).size;
    }
    if (begin > done) call(text.substr(done, begin - done), nullptr);
    call(text.substr(begin, end - begin), best);
    done = at = end;
  }
  if (done < text.size()) call(text.substr(done), nullptr);
}

}  // namespace horner
