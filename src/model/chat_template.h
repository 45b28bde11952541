// A chat as the text and the tokens that a model was trained on: a Jinja template of the model's folder, run here.
//
//   ChatTemplate chat(kChatMl, "<|im_start|>", "<|im_end|>");
//   const jinja::Text text = chat.render(messages, true);      // <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n
//   const std::vector<int32_t> ids = chat_tokens(tokenizer, text);
//
// The language is the part of Jinja that such templates use, with the settings of transformers (trim_blocks, lstrip_blocks,
// loop controls, tojson without escapes, raise_exception, strftime_now). Anything else is refused by name.
#pragma once

#include "io/tokenizer.h"
#include "model/jinja/interpreter.h"

namespace horner {

extern const std::string_view kChatMl;  // what --template chatml means

class ChatTemplate {
 public:
  // DataError, with the line and a way out, if it is not understood. `begin` and `end` are bos_token and eos_token.
  ChatTemplate(std::string_view source, std::string begin, std::string end);

  // `messages`: [{"role": .., "content": ..}, ..]. add_prompt: the answer comes next. `more`: further variables (tools).
  // DataError if the template refuses them or does not end.
  jinja::Text render(const Json& messages, bool add_prompt, const Json& more = Json::object())
      const;

 private:
  jinja::Block program_;
  std::string begin_, end_;
};

// The tokens of such a text. Bytes that a user wrote never become a special token.
std::vector<int32_t> chat_tokens(const Tokenizer& tokenizer, const jinja::Text& text);

}  // namespace horner
