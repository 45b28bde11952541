#include "model/grammar/schema.h"

#include <algorithm>

#include "model/grammar/schema_keywords.h"

namespace horner::grammar {

int32_t SchemaCompiler::add_rule(const Json& schema, const std::string& place) {
  const auto [found, is_new] = rule_of_.emplace(&schema, int32_t(waiting_.size()));
  if (is_new) waiting_.push_back({&schema, place});
  return found->second;
}

int32_t SchemaCompiler::any_value_rule() {
  const auto [found, is_new] = rule_of_.emplace(nullptr, int32_t(waiting_.size()));
  if (is_new) waiting_.push_back({nullptr, "any value"});
  return found->second;
}

int32_t SchemaCompiler::character_rule() {
  if (!character_rule_) {
    character_rule_ = int32_t(waiting_.size());
    waiting_.push_back({nullptr, "a character"});
  }
  return *character_rule_;
}

Grammar SchemaCompiler::run(std::string_view before, std::string_view behind) {
  std::vector<Rule> rules;
  waiting_.push_back({nullptr, ""});  // rule 0
  add_rule(root_, "");
  for (size_t rule = 0; rule < waiting_.size(); ++rule) {
    const Waiting now = waiting_[rule];
    Nfa nfa(budget_);
    if (rule == 0) {
      const int32_t end = nfa.add();
      nfa.call(nfa.text(kStart, before), 1, end);
      nfa.jump(nfa.text(end, behind), kEnd);
    } else if (now.schema) {
      value(nfa, kStart, *now.schema, now.place, kEnd);
    } else if (character_rule_ == int32_t(rule)) {
      nfa.any_json_character(kStart, kEnd);
    } else {
      any_value(nfa, kStart, kEnd);
    }
    rules.push_back({now.place, deterministic(nfa, budget_)});
  }
  return linked(rules);
}

void SchemaCompiler::value(
    Nfa& nfa, int32_t from, const Json& schema, const std::string& place, int32_t to
) {
  HORNER_CHECK(++nesting_ <= kMostNesting, "{}: schemas are nested too deep", place);
  HORNER_CHECK(
      schema.is_object() || schema == Json(true),
      "{}: a schema must be an object or true, got {}",
      place,
      to_line(schema).substr(0, 40)
  );
  if (schema.is_object()) check_keys(schema, place, &schema == &root_);
  if (schema.is_boolean()) {
    nfa.call(from, any_value_rule(), to);
  } else if (schema.contains("$ref")) {
    check_alone(schema, "$ref", place);
    nfa.call(from, add_rule(resolved(schema, place), place), to);
  } else if (schema.contains("anyOf")) {
    alternatives(nfa, from, schema, "anyOf", place, to);
  } else if (schema.contains("oneOf")) {
    alternatives(nfa, from, schema, "oneOf", place, to);
  } else if (schema.contains("allOf")) {
    HORNER_CHECK(
        schema["allOf"].is_array() && schema["allOf"].size() == 1,
        "{}: 'allOf' is supported for one schema only",
        place
    );
    alternatives(nfa, from, schema, "allOf", place, to);
  } else if (const auto values = values_of(schema, place)) {
    for (const Json& one : *values) nfa.jump(nfa.text(from, one.dump()), to);
  } else {
    const std::vector<std::string> types = types_of(schema, place);
    if (types.empty()) nfa.call(from, any_value_rule(), to);
    for (const std::string& type : types) {
      const int32_t begin = nfa.add();
      nfa.jump(from, begin);
      typed(nfa, begin, schema, type, place, to);
    }
  }
  --nesting_;
}

void SchemaCompiler::typed(
    Nfa& nfa,
    int32_t from,
    const Json& schema,
    const std::string& type,
    const std::string& place,
    int32_t to
) {
  if (type == "object") return object(nfa, from, schema, place, to);
  if (type == "array") return array(nfa, from, schema, place, to);
  if (type == "string") return string(nfa, from, schema, place, to);
  if (type == "null") return nfa.jump(nfa.text(from, "null"), to);
  if (type == "boolean") {
    nfa.jump(nfa.text(from, "true"), to);
    return nfa.jump(nfa.text(from, "false"), to);
  }
  number(nfa, from, schema, type == "integer", place, to);
}

void SchemaCompiler::alternatives(
    Nfa& nfa,
    int32_t from,
    const Json& schema,
    const std::string& key,
    const std::string& place,
    int32_t to
) {
  check_alone(schema, key, place);
  const Json& list = schema[key];
  const std::string inside = place + "/" + key;
  HORNER_CHECK(list.is_array() && !list.empty(), "{}: must be a list of schemas", inside);
  if (key == "oneOf") check_disjoint(list, inside);
  for (size_t i = 0; i < list.size(); ++i) {
    const int32_t begin = nfa.add();
    nfa.jump(from, begin);
    value(nfa, begin, list[i], fmt::format("{}/{}", inside, i), to);
  }
}

const Json& SchemaCompiler::resolved(const Json& schema, const std::string& place) const {
  const Json& ref = schema["$ref"];
  HORNER_CHECK(ref.is_string(), "{}/$ref: must be a string", place);
  const std::string& text = ref.get_ref<const std::string&>();
  const bool pointer = text == "#" || (text.starts_with("#/") && text.find('%') == text.npos);
  HORNER_CHECK(
      pointer, "{}/$ref: only #/.. in the same schema is supported, got '{}'", place, text
  );
  try {
    return root_.at(Json::json_pointer(text.substr(1)));
  } catch (const Json::exception&) {
    throw UsageError("{}/$ref: there is no '{}'", place, text);
  }
}

Grammar schema_grammar(const Json& schema, std::string_view before, std::string_view behind) {
  try {
    return SchemaCompiler(schema).run(before, behind);
  } catch (const UsageError& error) {
    const std::string_view message = error.what();
    throw UsageError(
        "the schema{}{}",
        message.starts_with("/")   ? ", "
        : message.starts_with(":") ? ""
                                   : ": ",
        message
    );
  }
}

Grammar json_object_grammar() { return schema_grammar(Json{{"type", "object"}}); }

}  // namespace horner::grammar
