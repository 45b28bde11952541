#include "model/chat_template.h"

#include <algorithm>

#include "core/check.h"

namespace horner {

const std::string_view kChatMl =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

namespace {

constexpr size_t kMostSource = 1 << 20;  // bytes

[[noreturn]] void refuse(const std::string& what) {
  throw DataError(
      "the chat template, {}; `--template chatml` uses the ChatML format instead",
      what.substr(0, what.find('\n'))
  );
}

int64_t specials(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer.special(id); });
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string begin, std::string end)
    : begin_(std::move(begin)), end_(std::move(end)) {
  if (source.size() > kMostSource) refuse(fmt::format("line 1: it has {} bytes", source.size()));
  try {
    program_ = jinja::parse(source);
  } catch (const jinja::Mistake& mistake) {
    refuse(mistake.what());
  }
}

jinja::Text ChatTemplate::render(const Json& messages, bool add_prompt, const Json& more) const {
  jinja::Dict globals = {
      {"messages", jinja::from_json(messages, true)},
      {"add_generation_prompt", add_prompt},
      {"bos_token", jinja::Text(begin_)},
      {"eos_token", jinja::Text(end_)}};
  for (const auto& [name, value] : more.items())
    globals.emplace_back(name, jinja::from_json(value, true));
  try {
    return jinja::run(program_, globals);
  } catch (const jinja::Mistake& mistake) {
    refuse(mistake.what());
  }
}

// The whole text at once gives the tokens of training, where words cross the borders of messages. If a user's bytes would
// then be a special token, each run of bytes by one author is encoded alone.
std::vector<int32_t> chat_tokens(const Tokenizer& tokenizer, const jinja::Text& text) {
  std::vector<int32_t> apart;
  int64_t by_template = 0;
  for (size_t at = 0; at < text.bytes.size();) {
    const char author = text.user[at];
    const size_t end = std::min(text.user.find(author ? '\0' : '\1', at), text.user.size());
    const std::vector<int32_t> ids = tokenizer.encode(
        std::string_view(text.bytes).substr(at, end - at), {.control = author == 0}
    );
    by_template += specials(tokenizer, ids);
    apart.insert(apart.end(), ids.begin(), ids.end());
    at = end;
  }
  std::vector<int32_t> joined = tokenizer.encode(text.bytes);
  return specials(tokenizer, joined) == by_template ? joined : apart;
}

}  // namespace horner
