// Objects and arrays of a JSON schema, and any value.
#include <algorithm>

#include "model/grammar/json_text.h"
#include "model/grammar/schema_keywords.h"

namespace horner::grammar {
namespace {

const Json kAny = true;

// Names in quotes and without escapes, but for these.
Dfa other_names(const std::vector<std::string>& names, Budget& budget) {
  Nfa any(budget), these(budget);
  const int32_t inside = any.text(kStart, "\"");
  any.character(
      inside, Characters::all().without(Characters({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}})), inside
  );
  any.byte(inside, '"', '"', kEnd);
  for (const std::string& name : names) these.jump(these.text(kStart, Json(name).dump()), kEnd);
  return product(
      deterministic(any, budget), deterministic(these, budget), Keep::first_only, budget
  );
}

struct Property {
  std::string name;
  const Json* schema;
  std::string place;
  bool required;
};

// Those of `properties`, then those that are only required.
std::vector<Property> properties_of(const Json& schema, const std::string& place) {
  const auto more = schema.find("additionalProperties");
  const auto declared = schema.find("properties");
  HORNER_CHECK(
      declared == schema.end() || declared->is_object(), "{}/properties: must be an object", place
  );
  const std::vector<std::string> required = required_of(schema, place);
  std::set<std::string> needed(required.begin(), required.end());
  std::vector<Property> properties;
  if (declared != schema.end()) {
    for (const auto& [name, one] : declared->items())
      properties.push_back({name, &one, place + "/properties/" + name, needed.erase(name) > 0});
  }
  for (const std::string& name : needed) {
    HORNER_CHECK(
        more == schema.end() || *more != Json(false),
        "{}: '{}' is required, but is no property",
        place,
        name
    );
    const Json* one = more == schema.end() ? &kAny : &*more;
    properties.push_back({name, one, place + "/additionalProperties", true});
  }
  return properties;
}

}  // namespace

std::vector<std::string> required_of(const Json& schema, const std::string& place) {
  std::vector<std::string> names;
  const auto found = schema.find("required");
  if (found == schema.end()) return names;
  HORNER_CHECK(found->is_array(), "{}/required: must be a list of names", place);
  for (const Json& name : *found) {
    HORNER_CHECK(name.is_string(), "{}/required: must be a list of names", place);
    names.push_back(name);
  }
  return names;
}

// Properties come in the order of the schema, then others.
//
//   {  [name: value]  [, name: value] ..  [, other name: value] ..  }
//
// `none` is the state where no property was written yet, `some` the state where one was.
void SchemaCompiler::object(
    Nfa& nfa, int32_t from, const Json& schema, const std::string& place, int32_t to
) {
  const std::vector<Property> properties = properties_of(schema, place);
  const auto named = [&](int32_t state, const Json& one, const std::string& where, int32_t end) {
    value(nfa, add_space(nfa, nfa.text(state, ":")), one, where, end);
  };
  int32_t none = add_space(nfa, nfa.text(from, "{")), some = nfa.add();
  for (const Property& property : properties) {
    const int32_t begin = nfa.add(), next_none = nfa.add(), next_some = nfa.add();
    nfa.jump(none, begin);
    nfa.jump(add_space(nfa, nfa.text(some, ",")), begin);
    named(nfa.text(begin, Json(property.name).dump()), *property.schema, property.place, next_some);
    if (!property.required) {
      nfa.jump(none, next_none);
      nfa.jump(some, next_some);
    }
    none = next_none;
    some = next_some;
  }
  const auto more = schema.find("additionalProperties");
  const auto declared = schema.find("properties");
  const bool open = declared == schema.end() || declared->empty();
  if (more == schema.end() ? open : *more != Json(false)) {
    const int32_t begin = nfa.add(), after_name = nfa.add();
    nfa.jump(none, begin);
    nfa.jump(add_space(nfa, nfa.text(some, ",")), begin);
    std::vector<std::string> names;
    for (const Property& property : properties) names.push_back(property.name);
    if (names.empty()) {
      nfa.jump(add_any_string(nfa, begin), after_name);
    } else {
      insert(nfa, begin, other_names(names, budget_), after_name);
    }
    named(after_name, more == schema.end() ? kAny : *more, place + "/additionalProperties", some);
  }
  nfa.jump(nfa.text(none, "}"), to);
  nfa.jump(nfa.text(add_space(nfa, some), "}"), to);
}

void SchemaCompiler::array(
    Nfa& nfa, int32_t from, const Json& schema, const std::string& place, int32_t to
) {
  HORNER_CHECK(
      !schema.contains("uniqueItems") || schema["uniqueItems"] == Json(false),
      "{}: 'uniqueItems' is not supported",
      place
  );
  const int64_t least = count_of(schema, "minItems", 0, place),
                most = count_of(schema, "maxItems", kNoLimit, place);
  HORNER_CHECK(most == kNoLimit || least <= most, "{}: minItems is above maxItems", place);
  const Json& items = schema.contains("items") ? schema["items"] : kAny;
  const std::string inside = place + "/items";
  const int32_t open = add_space(nfa, nfa.text(from, "[")), end = nfa.add();
  nfa.jump(nfa.text(end, "]"), to);
  if (least == 0) nfa.jump(open, end);
  int32_t before = nfa.add();
  nfa.jump(open, before);
  const bool counted = least > 1 || most != kNoLimit;
  const int64_t copies = std::max({least, most, int64_t(most == kNoLimit)});
  for (int64_t i = 1; i <= copies; ++i) {
    const int32_t after_item = nfa.add();
    if (counted) {
      nfa.call(
          before, items == Json(true) ? any_value_rule() : add_rule(items, inside), after_item
      );
    } else {
      value(nfa, before, items, inside, after_item);
    }
    if (i >= least) nfa.jump(add_space(nfa, after_item), end);
    const int32_t next = add_space(nfa, nfa.text(after_item, ","));
    if (i == copies && most == kNoLimit) nfa.jump(next, before);
    before = next;
  }
}

void SchemaCompiler::any_value(Nfa& nfa, int32_t from, int32_t to) {
  static const Json kObject = {{"type", "object"}}, kArray = {{"type", "array"}};
  for (const char* word : {"true", "false", "null"}) nfa.jump(nfa.text(from, word), to);
  nfa.jump(add_any_string(nfa, from), to);
  nfa.jump(add_any_number(nfa, from), to);
  object(nfa, from, kObject, "", to);
  array(nfa, from, kArray, "", to);
}

}  // namespace horner::grammar
