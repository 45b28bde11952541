#include "model/grammar/schema.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/thrown_test.h"
#include "model/grammar/sample_test.h"

namespace horner::grammar {
namespace {

Json parsed(const std::string& text) { return parse_json(text, "test"); }

struct Case {
  const char* schema;
  std::vector<const char*> yes, no;
};

const Case kCases[] = {
    {R"({"type":"integer"})",
     {"0", "-7", "120", "999999999999999"},
     {"01", "-0", "1.5", "1e3", "", "9999999999999999"}},
    {R"({"type":"integer","minimum":-12,"maximum":105})",
     {"-12", "-1", "0", "9", "10", "99", "100", "105"},
     {"-13", "106", "110", "-100", "200", "1000", "-0"}},
    {R"({"type":"integer","exclusiveMinimum":0.5,"exclusiveMaximum":3})", {"1", "2"}, {"0", "3"}},
    {R"({"type":"number"})", {"0", "-0.5", "1e9", "2.50E-3"}, {".5", "1.", "+1", "NaN", "01"}},
    {R"({"type":"number","minimum":0,"exclusiveMaximum":2})",
     {"0", "0.0", "1.999", "1"},
     {"2", "2.0", "-0.5", "-0", "1e1"}},
    {R"({"type":"number","exclusiveMinimum":-2,"maximum":-1})",
     {"-1", "-1.0", "-1.5", "-1.999"},
     {"-2", "-2.0", "-0.5", "0", "1"}},
    {R"({"type":["boolean","null"]})", {"true", "false", "null"}, {"True", "nul", "\"true\""}},
    {R"({"enum":["a","b\n",1,null,{"k":[1]}]})",
     {"\"a\"", "\"b\\n\"", "1", "null", "{\"k\":[1]}"},
     {"\"b\"", "2", "a"}},
    {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
    {R"({"const":"x"})", {"\"x\""}, {"\"y\""}},
    {R"({"type":"string"})",
     {"\"\"", "\"\xc3\xa9\\n\\u00e9\\ud83d\\ude00\"", "\"\\/\""},
     {"\"\n\"", "\"\\x\"", "\"\\ud800\"", "\"\xff\"", "\"", "\"a\"b"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {"\"ab\"", "\"\xc3\xa9\xe2\x82\xac\"", "\"\\n\\u0041\\ud83d\\ude00\""},
     {"\"a\"", "\"abcd\"", "\"\\n\""}},
    {R"({"type":"string","pattern":"^a+$"})", {"\"a\"", "\"aaa\""}, {"\"\"", "\"ab\""}},
    {R"({"type":"string","pattern":"b.|^$"})",
     {"\"xbcx\"", "\"\"", "\"b\\\"\""},
     {"\"b\"", "\"x\"", "\"b\\n\""}},
    {R"({"type":"string","pattern":"^[\"\\\\\u0001\n]+$"})",
     {"\"\\\"\\\\\\u0001\\n\""},
     {"\"\"\"", "\"\\u0002\""}},
    {R"({"type":"string","pattern":"^a*$","minLength":2,"maxLength":3})",
     {"\"aa\"", "\"aaa\""},
     {"\"a\"", "\"aaaa\"", "\"ab\""}},
    {R"({"type":"string","format":"date"})", {"\"2026-11-18\""}, {"\"2026-13-01\"", "\"x\""}},
    {R"({"type":"array","items":{"type":"null"}})",
     {"[]", "[ ]", "[null]", "[null, null]", "[\n  null,\n  null\n]"},
     {"[null,]", "[,]", "[1]", "[null", "[  null]"}},
    {R"({"type":"array","items":{"type":"null"},"minItems":2,"maxItems":3})",
     {"[null,null]", "[null,null,null]"},
     {"[]", "[null]", "[null,null,null,null]"}},
    {R"({"type":"array","items":{"type":"null"},"minItems":2})",
     {"[null,null]", "[null,null,null,null,null]"},
     {"[null]"}},
    {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
    {R"({"properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"required":["b"]})",
     {R"({"b":null})",
      R"({"a": null, "b": null})",
      R"({"b":null,"c":null})",
      "{\n  \"b\": null\n}"},
     {"{}",
      R"({"a":null})",
      R"({"b":null,"a":null})",
      R"({"b":null,})",
      R"({"b":null "c":null})",
      R"({"b":null,"d":null})"}},
    {R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":{"type":"integer"}})",
     {"{}", R"({"a":null})", R"({"x":1})", R"({"a":null,"aa":1,"y":2})", R"({"":1})"},
     {R"({"a":1})", R"({"x":1,"a":null})", R"({"\u0061":1})", R"({"x":null})"}},
    {R"({"type":"object","required":["z"],"additionalProperties":{"type":"integer"}})",
     {R"({"z":1})", R"({"z":1,"y":2})"},
     {"{}", R"({"y":2})"}},
    {R"({"type":"object"})", {"{}", R"({"a":{"b":[1,"x",{}]}})"}, {"[]", "{\"a\"}"}},
    {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
     {"1", "\"a\""},
     {"\"ab\"", "true"}},
    {R"({"oneOf":[{"properties":{"k":{"const":1}},"required":["k"]},{"properties":{"k":{"const":2}},"required":["k"]}]})",
     {R"({"k":1})", R"({"k":2})"},
     {R"({"k":3})"}},
    {R"({"$defs":{"n":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},
         "required":["next"]}},"$ref":"#/$defs/n"})",
     {R"({"next":null})", R"({"next":{"next":{"next":null}}})"},
     {R"({"next":{}})", R"({"next":{"next":null})"}},
    {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}},
    {"true", {"1", "\"a\"", "[{}]"}, {"", "x"}},
};

TEST(Schema, AcceptsValuesAndNothingElse) {
  for (const Case& one : kCases) {
    const Grammar grammar = schema_grammar(parsed(one.schema));
    for (const char* text : one.yes)
      EXPECT_TRUE(matches(grammar, text)) << one.schema << " " << text;
    for (const char* text : one.no)
      EXPECT_FALSE(matches(grammar, text)) << one.schema << " " << text;
  }
  const Grammar object = json_object_grammar();
  EXPECT_TRUE(matches(object, R"({"a": 1})"));
  EXPECT_FALSE(matches(object, "1"));
  const Grammar around =
      schema_grammar(parsed(R"({"type":"array","items":{"$ref":"#"}})"), "<t>", "</t>");
  EXPECT_TRUE(matches(around, "<t>[[]]</t>"));
  EXPECT_FALSE(matches(around, "[[]]"));
}

std::string refusal(const std::string& text) {
  return thrown<UsageError>([&] { schema_grammar(parsed(text)); });
}

TEST(Schema, RefusesKeywordsByName) {
  EXPECT_EQ(refusal(R"({"not":{}})"), "the schema: 'not' is not supported");
  for (const char* key :
       {"if",
        "patternProperties",
        "prefixItems",
        "minProperties",
        "contains",
        "dependentRequired",
        "$anchor"}) {
    EXPECT_EQ(
        refusal(fmt::format(R"({{"properties":{{"a":{{"{}":1}}}}}})", key)),
        fmt::format("the schema, /properties/a: '{}' is not supported", key)
    );
  }
  EXPECT_EQ(
      refusal(R"({"type":"array","uniqueItems":true})"),
      "the schema: 'uniqueItems' is not supported"
  );
  EXPECT_EQ(refusal(R"({"type":"frob"})"), "the schema: there is no type \"frob\"");
  EXPECT_EQ(
      refusal(R"({"enum":["a"],"minLength":1})"),
      "the schema: 'minLength' beside 'enum' is not supported"
  );
  EXPECT_EQ(
      refusal(R"({"anyOf":[{}],"type":"object"})"),
      "the schema: 'type' beside 'anyOf' is not supported"
  );
  EXPECT_EQ(
      refusal(R"({"allOf":[{},{}]})"), "the schema: 'allOf' is supported for one schema only"
  );
  EXPECT_EQ(
      refusal(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})"),
      "the schema, /oneOf: a value may satisfy both 0 and 1; use anyOf, or tell them apart by "
      "their type "
      "or by a required property with a constant"
  );
  EXPECT_NE(
      refusal(R"({"oneOf":[{"required":["a"]},{"type":"null"}]})"), "nothing"
  );  // null satisfies both
}

TEST(Schema, RefusesValuesThatItCannotKeep) {
  EXPECT_EQ(
      refusal(R"({"type":"number","minimum":0.5})"),
      "the schema, /minimum: bounds of numbers with a fraction must be whole and at most "
      "999999999999999, got 0.5"
  );
  EXPECT_EQ(
      refusal(R"({"type":"number","multipleOf":2})"),
      "the schema, /multipleOf: is not supported, but for 1 of an integer"
  );
  EXPECT_EQ(
      refusal(R"({"type":"integer","minimum":2,"maximum":1})"),
      "the schema: no number is in its range"
  );
  EXPECT_EQ(
      refusal(R"({"type":"string","format":"email"})"),
      "the schema, /format: \"email\" is not supported; date, time, date-time and uuid are"
  );
  EXPECT_EQ(
      refusal(R"({"type":"string","pattern":"a\\b"})"),
      "the schema, /pattern: character 2: \\b (the edge of a word) is not supported"
  );
  EXPECT_EQ(
      refusal(R"({"type":"string","pattern":"^a$","minLength":2})"),
      "the schema: no string satisfies it"
  );
  EXPECT_EQ(
      refusal(R"({"$ref":"other.json"})"),
      "the schema, /$ref: only #/.. in the same schema is supported, got 'other.json'"
  );
  EXPECT_EQ(refusal(R"({"$ref":"#/x"})"), "the schema, /$ref: there is no '#/x'");
  EXPECT_EQ(
      refusal(R"({"required":["a"],"additionalProperties":false})"),
      "the schema: 'a' is required, but is no property"
  );
  EXPECT_EQ(refusal("[]"), "the schema: a schema must be an object or true, got []");
}

TEST(Schema, HostileSchemasEndByALine) {
  const auto line = [](const Json& schema) {
    return thrown<UsageError>([&] { schema_grammar(schema); });
  };
  const std::string states =
      "the schema: it needs more than 100000 states; make its counts or its lists shorter";
  EXPECT_EQ(line(parsed(R"({"$ref":"#"})")), "the schema: refers to itself and nothing else");
  EXPECT_EQ(
      line(parsed(
          R"({"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})"
      )),
      "the schema: refers to itself and nothing else"
  );
  EXPECT_EQ(
      line(parsed(R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})")),
      "the schema: no text satisfies it, or only one that is nested more than 64 deep"
  );
  EXPECT_EQ(line(parsed(R"({"type":"string","maxLength":99999})")), states);
  EXPECT_EQ(line(parsed(R"({"type":"array","items":{"type":"null"},"maxItems":99999})")), states);
  EXPECT_EQ(
      line(parsed(R"({"type":"string","maxLength":1e30})")),
      "the schema: 'maxLength' must be a whole number from 0 to 100000, got 1e+30"
  );
  // Each definition holds two of the next: 2^60 values, but the grammar is small.
  Json laughs = {{"$ref", "#/$defs/0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 60; ++i) {
    const Json next =
        i == 59 ? Json{{"type", "null"}} : Json{{"$ref", fmt::format("#/$defs/{}", i + 1)}};
    laughs["$defs"][std::to_string(i)] = {{"type", "array"}, {"items", next}, {"minItems", 2}};
  }
  EXPECT_LT(schema_grammar(laughs).states.size(), 10000U);
  // Alternatives that begin alike at every depth: readings stay bounded.
  const Grammar alike = schema_grammar(parsed(R"({"$defs":{
      "a":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]},"maxItems":9},
      "b":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/a"}]},"maxItems":8}},
      "$ref":"#/$defs/a"})"));
  Readings now = first_readings(alike);
  for (int i = 0; i < 60; ++i) {
    now = after(alike, now, '[');
    ASSERT_FALSE(now.empty());
    ASSERT_LT(now.size(), 32U * 66U);
  }
  for (int i = 0; i < 60; ++i) now = after(alike, now, ']');
  EXPECT_TRUE(complete(now));
  Json deep = {{"type", "null"}};
  for (int i = 0; i < 150; ++i) deep = {{"type", "array"}, {"items", deep}};
  EXPECT_NE(line(deep).find("schemas are nested too deep"), std::string::npos);
  Json wide = {{"properties", Json::object()}};  // 200 optional properties
  for (int i = 0; i < 200; ++i) wide["properties"][fmt::format("p{}", i)] = {{"type", "null"}};
  EXPECT_TRUE(matches(schema_grammar(wide), R"({"p3":null,"p199":null})"));
}

TEST(Schema, DepthIsBoundedAndNeverADeadEnd) {
  const Grammar any = json_object_grammar();
  Readings now = first_readings(any);
  for (const char byte : std::string(R"({"a":)")) now = after(any, now, uint8_t(byte));
  int depth = 0;
  for (Readings next = now; !next.empty() && depth < 1000; ++depth) {
    now = next;
    next = after(any, now, '[');
  }
  EXPECT_GT(depth, 40);
  EXPECT_LT(depth, 100);
  for (int i = 0; i < depth - 1; ++i) {
    now = after(any, now, ']');
    ASSERT_FALSE(now.empty());
  }
  EXPECT_TRUE(complete(after(any, now, '}')));
}

// An independent reading of the same keywords.
bool valid(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_boolean()) return schema;
  const auto one = [&](const Json& s) { return valid(value, s, root); };
  if (schema.contains("$ref"))
    return one(root.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1))));
  if (schema.contains("anyOf"))
    return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(), one);
  if (schema.contains("oneOf"))
    return std::count_if(schema["oneOf"].begin(), schema["oneOf"].end(), one) == 1;
  if (schema.contains("enum"))
    return std::count(schema["enum"].begin(), schema["enum"].end(), value) > 0;
  const std::string type = schema["type"];
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer" || type == "number") {
    const bool good = type == "integer" ? value.is_number_integer() : value.is_number();
    return good && value.get<double>() >= schema.value("minimum", -1e300) &&
           value.get<double>() <= schema.value("maximum", 1e300) &&
           value.get<double>() > schema.value("exclusiveMinimum", -1e300) &&
           value.get<double>() < schema.value("exclusiveMaximum", 1e300);
  }
  if (type == "string") {
    if (!value.is_string()) return false;
    const std::string text = value;
    const auto length =
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
    return length >= schema.value("minLength", 0) && length <= schema.value("maxLength", 100000);
  }
  if (type == "array") {
    return value.is_array() && int(value.size()) >= schema.value("minItems", 0) &&
           int(value.size()) <= schema.value("maxItems", 100000) &&
           std::all_of(value.begin(), value.end(), [&](const Json& item) {
             return valid(item, schema["items"], root);
           });
  }
  if (!value.is_object()) return false;
  for (const Json& name : schema["required"]) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  for (const auto& [name, item] : value.items()) {
    const Json& inside = schema["properties"].contains(name) ? schema["properties"][name]
                                                             : schema["additionalProperties"];
    if (!valid(item, inside, root)) return false;
  }
  return true;
}

rc::Gen<Json> schema(int depth) {
  return rc::gen::exec([=]() -> Json {
    const auto number = [](int least, int end) { return *rc::gen::inRange(least, end); };
    const int kind = number(0, depth > 0 ? 10 : 6);
    const int low = number(-30, 30), size = number(0, 4);
    switch (kind) {
      case 0: return {{"type", "null"}};
      case 1: return {{"type", "integer"}, {"minimum", low}, {"maximum", low + number(0, 200)}};
      case 2:
        return {{"type", "number"}, {"exclusiveMinimum", low}, {"maximum", low + number(1, 9)}};
      case 3: return {{"type", "string"}, {"minLength", size}, {"maxLength", size + number(0, 5)}};
      case 4: return {{"enum", {"a", 1, nullptr, {1, 2}}}};
      case 5: return {{"type", "boolean"}};
      case 6:
        return {
            {"type", "array"},
            {"items", *schema(depth - 1)},
            {"minItems", size},
            {"maxItems", size + 2}};
      case 7: return {{"anyOf", Json::array({*schema(depth - 1), *schema(depth - 1)})}};
      case 8:
        return {
            {"anyOf",
             Json::array({{{"$ref", "#"}}, {{"type", "null"}}})}};  // the root is an object
      default: break;
    }
    Json properties = Json::object(), required = Json::array();
    for (int i = 0; i < size; ++i) {
      properties[std::string(1, char('a' + i))] = *schema(depth - 1);
      if (number(0, 2)) required.push_back(std::string(1, char('a' + i)));
    }
    const Json more = number(0, 2) ? Json(false) : *schema(depth - 1);
    return {
        {"type", "object"},
        {"properties", properties},
        {"required", required},
        {"additionalProperties", more}};
  });
}

RC_GTEST_PROP(Schema, EveryTextParsesAndSatisfiesItsSchema, (uint64_t seed)) {
  const Json root = {
      {"type", "object"},
      {"properties", {{"x", *schema(3)}, {"y", *schema(2)}}},
      {"required", {"y"}},
      {"additionalProperties", *schema(1)}};
  const Grammar grammar = schema_grammar(root);
  for (uint64_t i = 0; i < 3; ++i) {
    const auto text = random_text(grammar, seed + i, 1500);
    if (!text) continue;
    const Json value =
        Json::parse(*text);  // not parsed(): a name that is no property may come twice
    if (!valid(value, root, root)) RC_FAIL(to_line(root) + "\n" + *text);
  }
}

}  // namespace
}  // namespace horner::grammar
