#include "model/answer_form.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/thrown_test.h"
#include "model/grammar/sample_test.h"

namespace horner {
namespace {

using grammar::matches;

Json parsed(const std::string& text) { return parse_json(text, "test"); }

const char* const kTools = R"([{"type":"function","function":{"name":"weather","parameters":{
    "$defs":{"unit":{"enum":["C","F"]}},"type":"object",
    "properties":{"place":{"type":"string"},"unit":{"$ref":"#/$defs/unit"}},"required":["place"]}}},
    {"type":"function","function":{"name":"now"}}])";
constexpr std::string_view kHermes = "{% if tools %}<tool_call>{% endif %}",
                           kNoTools = "{{ messages }}";

Json request(const std::string& more) {
  return parsed(R"({"tools":)" + std::string(kTools) + more + "}");
}

TEST(AnswerForm, ResponseFormats) {
  const auto form = [](const std::string& text) { return read_answer_form(parsed(text), ""); };
  EXPECT_FALSE(form("{}").grammar);
  EXPECT_FALSE(form(R"({"response_format":{"type":"text"},"tools":[],"tool_choice":null})").grammar
  );
  EXPECT_TRUE(matches(*form(R"({"response_format":{"type":"json_object"}})").grammar, R"({"a":1})")
  );
  const AnswerForm schema = form(
      R"({"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"integer"}}}})"
  );
  EXPECT_TRUE(matches(*schema.grammar, "12"));
  EXPECT_FALSE(matches(*schema.grammar, "\"a\""));
  EXPECT_TRUE(matches(*form(R"({"regex":"a+"})").grammar, "aa"));
  EXPECT_TRUE(matches(*form(R"({"response_format":{"type":"regex","regex":"a+"}})").grammar, "aa"));
}

TEST(AnswerForm, Refusals) {
  const auto line = [](const std::string& text, std::string_view source = kHermes) {
    return thrown<UsageError>([&] { read_answer_form(parsed(text), source); });
  };
  EXPECT_EQ(line("[]"), "the request must be a JSON object");
  EXPECT_EQ(line(R"({"response_format":"json"})"), "response_format must have a string 'type'");
  EXPECT_EQ(
      line(R"({"response_format":{"type":"xml"}})"),
      "response_format: there is no type 'xml'; text, json_object, json_schema and regex are known"
  );
  EXPECT_EQ(
      line(R"({"response_format":{"type":"json_schema"}})"),
      "response_format must have json_schema.schema"
  );
  EXPECT_EQ(line(R"({"regex":"(a"})"), "the regular expression: character 1: '(' has no ')'");
  EXPECT_EQ(
      line(R"({"regex":"a","response_format":{"type":"json_object"}})"),
      "regex and response_format exclude each other"
  );
  EXPECT_EQ(line(R"({"tool_choice":"required"})"), "tool_choice needs tools");
  EXPECT_EQ(line(R"({"tools":{}, "tool_choice":"required"})"), "tool_choice needs tools");
  EXPECT_EQ(line(R"({"tools":[1]})"), "each of tools must have a string 'type'");
  EXPECT_EQ(
      line(R"({"tools":[{"type":"web"}]})"), "tools: only functions are supported, got 'web'"
  );
  EXPECT_EQ(
      line(R"({"tools":[{"type":"function","function":{"name":"a b"}}]})"),
      "tools: a name has 1 to 64 letters, digits, _ and -, got 'a b'"
  );
  EXPECT_EQ(
      thrown<UsageError>([] {
        read_answer_form(request(R"(,"tool_choice":{"function":{"name":"x"}})"), kHermes);
      }),
      "tool_choice: there is no tool 'x'"
  );
  EXPECT_EQ(
      thrown<UsageError>([] { read_answer_form(request(""), kNoTools); }),
      "the model's chat template takes no tools; tool_choice \"required\" still works"
  );
  EXPECT_EQ(
      thrown<UsageError>([] { read_answer_form(request(R"(,"regex":"a")"), kHermes); }),
      "tools beside response_format or regex are not supported"
  );
}

TEST(AnswerForm, ToolChoice) {
  const auto form = [](const std::string& choice, std::string_view source) {
    return read_answer_form(request(choice), source);
  };
  const AnswerForm automatic = form("", kHermes);
  EXPECT_FALSE(automatic.grammar);
  EXPECT_EQ(automatic.template_variables()["tools"].size(), 2U);
  const AnswerForm none = form(R"(,"tool_choice":"none")", kHermes);
  EXPECT_TRUE(none.tools.empty());
  EXPECT_EQ(none.template_variables(), Json::object());
  const std::string call = R"({"name":"weather","arguments":{"place":"Oslo","unit":"C"}})";
  const AnswerForm required = form(R"(,"tool_choice":"required")", kHermes);
  EXPECT_TRUE(matches(*required.grammar, "<tool_call>\n" + call + "\n</tool_call>"));
  EXPECT_TRUE(matches(
      *required.grammar, "<tool_call>\n{\"name\":\"now\",\"arguments\":{\"x\":1}}\n</tool_call>"
  ));
  EXPECT_FALSE(matches(*required.grammar, call));
  const AnswerForm named =
      form(R"(,"tool_choice":{"type":"function","function":{"name":"weather"}})", kNoTools);
  EXPECT_TRUE(matches(*named.grammar, call));
  EXPECT_FALSE(matches(*named.grammar, R"({"name":"now","arguments":{}})"));
  EXPECT_FALSE(matches(*named.grammar, R"({"name":"weather","arguments":{"unit":"C"}})"));
  EXPECT_FALSE(matches(*named.grammar, R"({"name":"weather","arguments":{"place":"","unit":"K"}})")
  );
  EXPECT_EQ(named.template_variables(), Json::object());
}

TEST(AnswerForm, EveryDemandedCallIsParsed) {
  for (const std::string_view source : {kHermes, kNoTools}) {
    const AnswerForm form = read_answer_form(request(R"(,"tool_choice":"required")"), source);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto text = grammar::random_text(*form.grammar, seed, 600);
      if (!text) continue;
      const ParsedAnswer answer = parse_answer(*text, form, "call_");
      ASSERT_EQ(answer.tool_calls.size(), 1U) << *text;
      EXPECT_EQ(answer.content, "");
      EXPECT_TRUE(parsed(answer.tool_calls[0]["function"]["arguments"]).is_object());
    }
  }
}

TEST(AnswerForm, ParsesAnswers) {
  const AnswerForm form = read_answer_form(request(""), kHermes);
  const auto parse = [&](const std::string& text) { return parse_answer(text, form, "call_7_"); };
  const ParsedAnswer two = parse(
      "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": "
      "\"Oslo\"}}\n</tool_call>\n"
      "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"
  );
  EXPECT_EQ(two.content, "Let me see.");
  EXPECT_EQ(two.tool_calls, parsed(R"([
      {"id":"call_7_0","type":"function","function":{"name":"weather","arguments":"{\"place\":\"Oslo\"}"}},
      {"id":"call_7_1","type":"function","function":{"name":"now","arguments":"{}"}}])"));
  EXPECT_EQ(
      parse("<tool_call>{\"name\": \"now\", \"arguments\": {}}").tool_calls.size(), 1U
  );                                                                               // not closed
  EXPECT_EQ(parse(R"({"name": "now", "parameters": {}})").tool_calls.size(), 1U);  // Llama 3
  for (const char* text :
       {"Hi",
        "<tool_call>{\"name\": \"now\"",
        "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>",
        "{\"name\": \"now\"}",
        "<tool_call></tool_call> x",
        "{\"name\": \"now\", \"arguments\": 1}"}) {
    EXPECT_TRUE(parse(text).tool_calls.empty()) << text;
    EXPECT_EQ(parse(text).content, text);
  }
  const std::string call = R"({"name": "now", "arguments": {}})";
  EXPECT_EQ(
      parse_answer(call, read_answer_form(Json::object(), ""), "").content, call
  );  // no tools
}

TEST(AnswerForm, MessagesForTemplates) {
  const Json messages = parsed(R"([
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":
          {"name":"now","arguments":"{\"x\": [1]}"}}]},
      {"role":"tool","tool_call_id":"1","content":"noon"}])");
  const Json made = template_messages(messages, read_answer_form(request(""), kHermes));
  EXPECT_EQ(made[0]["content"], "ab");
  EXPECT_EQ(made[1]["tool_calls"][0]["function"]["arguments"], parsed(R"({"x":[1]})"));
  EXPECT_EQ(made[2], messages[2]);
  const AnswerForm bare = read_answer_form(request(R"(,"tool_choice":"required")"), kNoTools);
  const Json told = template_messages(messages, bare);
  EXPECT_EQ(told.size(), 4U);
  EXPECT_NE(told[0]["content"].get<std::string>().find("\"weather\""), std::string::npos);
  const auto line = [&](const std::string& text) {
    return thrown<UsageError>([&] { template_messages(parsed(text), bare); });
  };
  EXPECT_EQ(line("{}"), "messages must be a list");
  EXPECT_EQ(line(R"([{"content":"a"}])"), "each of messages must have a string 'role'");
  EXPECT_EQ(
      line(R"([{"role":"user","content":[{"type":"image_url"}]}])"),
      "content of type 'image_url' is not supported; text is"
  );
  EXPECT_NE(
      line(R"([{"role":"assistant","tool_calls":[{"function":{"name":"a","arguments":"{"}}]}])")
          .find("arguments of a tool call"),
      std::string::npos
  );
}

}  // namespace
}  // namespace horner
