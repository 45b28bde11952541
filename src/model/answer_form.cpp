#include "model/answer_form.h"

#include <algorithm>

#include "core/check.h"

namespace horner {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
constexpr size_t kMostTools = 128;

std::string text_of(const Json& object, const char* key, const char* where) {
  HORNER_CHECK(
      object.is_object() && object.contains(key) && object[key].is_string(),
      "{} must have a string '{}'",
      where,
      key
  );
  return object[key];
}

bool given(const Json& body, const char* key) { return body.contains(key) && !body[key].is_null(); }

std::optional<grammar::Grammar> response_grammar(const Json& format) {
  const std::string type = text_of(format, "type", "response_format");
  if (type == "text") return {};
  if (type == "json_object") return grammar::json_object_grammar();
  if (type == "regex") return grammar::regex_grammar(text_of(format, "regex", "response_format"));
  HORNER_CHECK(
      type == "json_schema",
      "response_format: there is no type '{}'; text, json_object, json_schema and regex are known",
      type
  );
  const bool has = format.contains("json_schema") && format["json_schema"].is_object() &&
                   format["json_schema"].contains("schema");
  HORNER_CHECK(has, "response_format must have json_schema.schema");
  return grammar::schema_grammar(format["json_schema"]["schema"]);
}

Json checked_tools(const Json& tools) {
  HORNER_CHECK(
      tools.is_array() && tools.size() <= kMostTools,
      "tools must be a list of at most {}",
      kMostTools
  );
  for (const Json& tool : tools) {
    const std::string type = text_of(tool, "type", "each of tools");
    HORNER_CHECK(type == "function", "tools: only functions are supported, got '{}'", type);
    HORNER_CHECK(tool.contains("function"), "each of tools must have a 'function'");
    const std::string name = text_of(tool["function"], "name", "each function of tools");
    const bool good =
        !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
          return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' ||
                 c == '-';
        });
    HORNER_CHECK(good, "tools: a name has 1 to 64 letters, digits, _ and -, got '{}'", name);
  }
  return tools;
}

// References of a schema that stands at `prefix` of another one.
Json rebased(const Json& schema, const std::string& prefix) {
  if (!schema.is_object()) return schema;
  Json made = schema;
  for (auto& [key, value] : made.items()) {
    if (key == "$ref" && value.is_string()) {
      const std::string ref = value;
      if (ref.starts_with("#")) value = "#" + prefix + ref.substr(1);
    } else if (key == "items" || key == "additionalProperties") {
      value = rebased(value, prefix);
    } else if (key == "anyOf" || key == "oneOf" || key == "allOf" || key == "properties" ||
               key == "$defs" || key == "definitions") {
      for (Json& one : value) one = rebased(one, prefix);
    }
  }
  return made;
}

// A call of one of the tools.
grammar::Grammar call_grammar(const Json& tools, bool tags) {
  Json calls = Json::array();
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    Json parameters =
        given(function, "parameters") ? function["parameters"] : Json{{"type", "object"}};
    if (parameters.is_object()) {
      parameters.erase("$id");
      if (!parameters.contains("type") && !parameters.contains("$ref"))
        parameters["type"] = "object";
    }
    const std::string prefix = fmt::format("/anyOf/{}/properties/arguments", calls.size());
    calls.push_back(
        {{"type", "object"},
         {"properties",
          {{"name", {{"const", function["name"]}}}, {"arguments", rebased(parameters, prefix)}}},
         {"required", {"name", "arguments"}},
         {"additionalProperties", false}}
    );
  }
  const Json schema = {{"anyOf", std::move(calls)}};
  const std::string open = std::string(kOpen) + "\n", close = "\n" + std::string(kClose);
  return tags ? grammar::schema_grammar(schema, open, close) : grammar::schema_grammar(schema);
}

// The tools that must be called; none if the model may choose.
Json demanded_tools(const Json& choice, const Json& tools) {
  if (choice.is_string()) {
    const std::string& word = choice.get_ref<const std::string&>();
    HORNER_CHECK(
        word == "auto" || word == "required",
        "tool_choice must be none, auto, required or a function, got '{}'",
        word
    );
    return word == "required" ? tools : Json::array();
  }
  const bool named = choice.is_object() && choice.contains("function");
  HORNER_CHECK(named, "tool_choice must be none, auto, required or a function");
  const std::string name = text_of(choice["function"], "name", "tool_choice.function");
  for (const Json& tool : tools) {
    if (tool["function"]["name"] == name) return Json::array({tool});
  }
  throw UsageError("tool_choice: there is no tool '{}'", name);
}

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n\r\t");
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \n\r\t") + 1 - begin));
}

// {"name": .., "arguments": ..} (Llama 3: "parameters") as a call; null if it is none.
Json call_of(const std::string& text, const AnswerForm& form) {
  Json json;
  try {
    json = parse_json(text, "the call");
  } catch (const DataError&) {
    return nullptr;
  }
  if (!json.is_object() || !json.contains("name")) return nullptr;
  const bool known = std::any_of(form.tools.begin(), form.tools.end(), [&](const Json& tool) {
    return tool["function"]["name"] == json["name"];
  });
  const char* const key = json.contains("arguments") ? "arguments" : "parameters";
  if (!known || !json.contains(key) || !json[key].is_object()) return nullptr;
  return {
      {"type", "function"},
      {"function", {{"name", json["name"]}, {"arguments", to_line(json[key])}}}};
}

std::string joined_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    const std::string type = text_of(part, "type", "each part of a message's content");
    HORNER_CHECK(type == "text", "content of type '{}' is not supported; text is", type);
    text += text_of(part, "text", "a text part of a message");
  }
  return text;
}

}  // namespace

Json AnswerForm::template_variables() const {
  return tools.empty() || !tools_in_template ? Json::object() : Json{{"tools", tools}};
}

AnswerForm read_answer_form(const Json& body, std::string_view template_source) {
  AnswerForm form;
  HORNER_CHECK(body.is_object(), "the request must be a JSON object");
  if (given(body, "response_format")) form.grammar = response_grammar(body["response_format"]);
  if (given(body, "regex")) {
    HORNER_CHECK(!form.grammar, "regex and response_format exclude each other");
    form.grammar = grammar::regex_grammar(text_of(body, "regex", "the request"));
  }
  const Json choice = given(body, "tool_choice") ? body["tool_choice"] : Json("auto");
  const bool none = choice == Json("none");
  if (!given(body, "tools") || body["tools"].empty()) {
    HORNER_CHECK(none || choice == Json("auto"), "tool_choice needs tools");
    return form;
  }
  const Json tools = checked_tools(body["tools"]);
  if (none) return form;
  HORNER_CHECK(!form.grammar, "tools beside response_format or regex are not supported");
  form.tools = tools;
  form.tools_in_template = template_source.find("tools") != template_source.npos;
  form.tags = template_source.find(kOpen) != template_source.npos;
  const Json demanded = demanded_tools(choice, tools);
  HORNER_CHECK(
      form.tools_in_template || !demanded.empty(),
      "the model's chat template takes no tools; tool_choice \"required\" still works"
  );
  if (!demanded.empty()) form.grammar = call_grammar(demanded, form.tags);
  return form;
}

Json template_messages(const Json& messages, const AnswerForm& form) {
  HORNER_CHECK(messages.is_array(), "messages must be a list");
  Json made = messages;
  for (Json& message : made) {
    text_of(message, "role", "each of messages");
    if (message.contains("content") && message["content"].is_array())
      message["content"] = joined_parts(message["content"]);
    if (!given(message, "tool_calls")) continue;
    HORNER_CHECK(message["tool_calls"].is_array(), "tool_calls of a message must be a list");
    for (Json& call : message["tool_calls"]) {
      HORNER_CHECK(call.is_object() && call.contains("function"), "a tool call has no function");
      text_of(call["function"], "name", "the function of a tool call");
      if (!call["function"].contains("arguments")) continue;
      Json& arguments = call["function"]["arguments"];
      if (!arguments.is_string()) continue;
      try {
        arguments = parse_json(arguments.get<std::string>(), "arguments of a tool call");
      } catch (const DataError& error) {
        throw UsageError("{}", error.what());
      }
    }
  }
  if (form.tools.empty() || form.tools_in_template) return made;
  std::string told = "Call one of these functions:\n";
  for (const Json& tool : form.tools) told += to_line(tool["function"]) + "\n";
  told += R"(Answer with {"name": the function, "arguments": {..}} alone.)";
  const bool system = !made.empty() && made[0]["role"] == "system" && made[0].contains("content") &&
                      made[0]["content"].is_string();
  if (system) {
    made[0]["content"] = made[0]["content"].get<std::string>() + "\n\n" + told;
  } else {
    made.insert(made.begin(), Json{{"role", "system"}, {"content", told}});
  }
  return made;
}

ParsedAnswer parse_answer(
    const std::string& text, const AnswerForm& form, const std::string& id_prefix
) {
  ParsedAnswer answer;
  if (form.tools.empty()) {
    answer.content = text;
    return answer;
  }
  const auto add = [&](Json call) {
    Json numbered = {{"id", fmt::format("{}{}", id_prefix, answer.tool_calls.size())}};
    numbered.update(call);
    answer.tool_calls.push_back(std::move(numbered));
  };
  if (const Json call = call_of(trimmed(text), form); !call.is_null()) {
    add(call);
    return answer;
  }
  size_t done = 0;
  for (size_t at = 0; (at = text.find(kOpen, at)) != text.npos;) {
    const size_t begin = at + kOpen.size();
    const size_t close = text.find(kClose, begin);  // a text may end before it is closed
    const size_t end = close == text.npos ? text.size() : close + kClose.size();
    const Json call = call_of(trimmed(std::string_view(text).substr(begin, close - begin)), form);
    if (!call.is_null()) {
      answer.content += text.substr(done, at - done);
      add(call);
      done = end;
    }
    at = call.is_null() ? begin : end;
  }
  answer.content += text.substr(done);
  if (!answer.tool_calls.empty()) answer.content = trimmed(answer.content);
  return answer;
}

}  // namespace horner
