// A request for texts, /v1/completions or /v1/chat/completions: its JSON checked and turned into prompts of tokens.
#pragma once

#include "model/answer_form.h"
#include "serve/request_fields.h"
#include "serve/served_model.h"

namespace horner {

struct TextRequest {
  bool chat = false, stream = false, include_usage = false, echo = false;
  int64_t n = 1;                    // texts of each prompt
  std::optional<int64_t> logprobs;  // of each token, with so many of the likeliest
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> shown;   // the prompts as text, for echo
  std::vector<int64_t> boundaries;  // of the messages of a chat
  AnswerForm form;                  // of a chat: tools, and what the options' mask was made of
  GenerateOptions options;
  std::string state, save_as;

  size_t choices() const { return prompts.size() * size_t(n); }
  std::vector<PromptTask> tasks(const std::shared_ptr<TextChannel>& channel) const;
};

// ApiError 400 or 404 that names the field.
TextRequest read_text_request(const ServedModel& model, const Json& body, bool chat);

std::vector<int32_t> read_ids(const std::string& field, const Json& list, int64_t vocabulary);

// A string, a list of strings, ids, or a list of lists of ids.   `encode`: the tokens of a string
using Encode = std::function<std::vector<int32_t>(const std::string&)>;
std::vector<std::vector<int32_t>> read_prompts(
    const std::string& field, const Json& value, int64_t vocabulary, const Encode& encode
);

// Messages as the template wants them.
Json read_messages(const Json& body, const AnswerForm& form);
// Tokens of a chat up to the answer. `boundaries`, unless null, are the numbers of tokens after which a message begins.
std::vector<int32_t> chat_prompt(
    const ServedModel& model,
    const Json& body,
    const AnswerForm& form,
    std::vector<int64_t>* boundaries
);
jinja::Text chat_text(
    const ServedModel& model,
    const Json& messages,
    bool add_prompt,
    const Json& body,
    const AnswerForm& form
);

void check_model(const ServedModel& model, const RequestFields& fields);  // ApiError 404

}  // namespace horner
