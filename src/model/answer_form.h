// What a client asks of the form of an answer, in the words of OpenAI's API, and tool calls in both directions. No HTTP here.
//
//   const AnswerForm form = read_answer_form(body, template_source);     // response_format, regex, tools, tool_choice
//   const Json messages = template_messages(body["messages"], form);     // as templates want them
//   chat.render(messages, true, form.template_variables());              // {"tools": ..} if the template takes them
//   if (form.grammar) options.mask = std::make_shared<const TokenMask>(trie, *form.grammar);
//   const ParsedAnswer answer = parse_answer(text, form, "call_17_");    // content and tool_calls of the message
//
// Everything that is not understood is a UsageError with one line for the client (status 400). Other keys of the body are not
// looked at. A tool call is <tool_call>{"name": .., "arguments": ..}</tool_call> if the template says so (Hermes, Qwen), else
// the JSON alone. With tool_choice "auto" a model may call or not; "required" or a name make it call, by the grammar.
#pragma once

#include <optional>

#include "model/grammar/grammar.h"

namespace horner {

struct AnswerForm {
  std::optional<grammar::Grammar> grammar;  // none: any text
  Json tools = Json::array();               // none: the answer is text
  bool tools_in_template = false;
  bool tags = false;  // <tool_call> around a call

  Json template_variables() const;
};

// `body` is a request of /v1/chat/completions or /v1/completions; `template_source` is empty if there is no template.
AnswerForm read_answer_form(const Json& body, std::string_view template_source);

// Lists of text parts become one string, arguments of tool calls become objects. Tools that the template cannot show go into
// the system message.
Json template_messages(const Json& messages, const AnswerForm& form);

struct ParsedAnswer {
  std::string content;  // what is not a call
  Json tool_calls = Json::array(
  );  // [{"id", "type": "function", "function": {"name", "arguments": a string}}, ..]
};
// Ids are the prefix and a number. What is no call of one of the tools stays content.
ParsedAnswer parse_answer(
    const std::string& text, const AnswerForm& form, const std::string& id_prefix
);

}  // namespace horner
