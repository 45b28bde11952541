#include "model/grammar/schema_keywords.h"

#include <algorithm>
#include <cmath>

namespace horner::grammar {
namespace {

constexpr const char* kTypes[] = {
    "object", "array", "string", "number", "integer", "boolean", "null"};

// What says nothing about the value.
const std::set<std::string_view> kNotes = {
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "$schema",
    "readOnly",
    "writeOnly",
    "deprecated",
    "$defs",
    "definitions",
    "discriminator"};
// What concerns values of one type, and what that type is.
const std::map<std::string_view, std::string_view> kTypeOf = {
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"items", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"pattern", "string"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"}};

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer")
    return value.is_number_integer() ||
           (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
  return type_of(value) == type;
}

}  // namespace

void check_keys(const Json& schema, const std::string& place, bool is_root) {
  for (const auto& [key, value] : schema.items()) {
    const bool known = kNotes.count(key) || kTypeOf.count(key) || key == "type" || key == "enum" ||
                       key == "const" || key == "anyOf" || key == "oneOf" || key == "allOf" ||
                       key == "$ref" || (key == "$id" && is_root);
    HORNER_CHECK(known, "{}: '{}' is not supported", place, key);
  }
}

void check_alone(const Json& schema, const std::string& key, const std::string& place) {
  for (const auto& [other, value] : schema.items()) {
    HORNER_CHECK(
        other == key || other == "$id" || kNotes.count(other),
        "{}: '{}' beside '{}' is not supported",
        place,
        other,
        key
    );
  }
}

std::string type_of(const Json& value) {
  return value.is_object()    ? "object"
         : value.is_array()   ? "array"
         : value.is_string()  ? "string"
         : value.is_boolean() ? "boolean"
         : value.is_null()    ? "null"
                              : "number";
}

std::vector<std::string> types_of(const Json& schema, const std::string& place) {
  std::vector<std::string> types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    const Json list = type->is_array() ? *type : Json::array({*type});
    for (const Json& name : list) {
      const bool known = name.is_string() &&
                         std::find(std::begin(kTypes), std::end(kTypes), name.get<std::string>()) !=
                             std::end(kTypes);
      HORNER_CHECK(known, "{}: there is no type {}", place, to_line(name));
      types.push_back(name);
    }
    HORNER_CHECK(!types.empty(), "{}: 'type' is an empty list", place);
  } else {
    for (const auto& [key, value] : schema.items()) {
      const auto found = kTypeOf.find(key);
      if (found != kTypeOf.end()) types.emplace_back(found->second);
    }
  }
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  const auto has = [&](const char* type) { return std::count(types.begin(), types.end(), type); };
  if (has("number")) std::erase(types, "integer");
  return types;
}

std::optional<std::vector<Json>> values_of(const Json& schema, const std::string& place) {
  const bool listed = schema.contains("enum");
  if (!listed && !schema.contains("const")) return {};
  const std::string key = listed ? "enum" : "const";
  for (const auto& [other, value] : schema.items()) {
    HORNER_CHECK(
        (other == key || kTypeOf.count(other) == 0) && (other != "const" || !listed),
        "{}: '{}' beside '{}' is not supported",
        place,
        other,
        key
    );
  }
  std::vector<Json> values;
  if (listed) {
    HORNER_CHECK(schema["enum"].is_array(), "{}: 'enum' must be a list", place);
    for (const Json& value : schema["enum"]) values.push_back(value);
  } else {
    values.push_back(schema["const"]);
  }
  const std::vector<std::string> types = types_of(schema, place);
  std::erase_if(values, [&](const Json& value) {
    return !types.empty() && std::none_of(types.begin(), types.end(), [&](const std::string& type) {
      return has_type(value, type);
    });
  });
  HORNER_CHECK(!values.empty(), "{}: '{}' has no value of its type", place, key);
  return values;
}

int64_t count_of(const Json& schema, const char* key, int64_t otherwise, const std::string& place) {
  const auto found = schema.find(key);
  if (found == schema.end()) return otherwise;
  const bool good = found->is_number_integer() && *found >= 0 && *found <= kMostStates;
  HORNER_CHECK(
      good,
      "{}: '{}' must be a whole number from 0 to {}, got {}",
      place,
      key,
      kMostStates,
      to_line(*found)
  );
  return found->get<int64_t>();
}

}  // namespace horner::grammar
