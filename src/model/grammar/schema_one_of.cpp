// Whether the alternatives of oneOf exclude each other.
#include <algorithm>

#include "model/grammar/schema_keywords.h"

namespace horner::grammar {

// A text that satisfies two alternatives would break oneOf.
void SchemaCompiler::check_disjoint(const Json& list, const std::string& place) {
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      HORNER_CHECK(
          disjoint(list[i], list[j], 0),
          "{}: a value may satisfy both {} and {}; use anyOf, or tell them apart by their type or "
          "by a required property with a constant",
          place,
          j,
          i
      );
    }
  }
}

// Whether no value satisfies both, as far as types, constants and required properties tell.
bool SchemaCompiler::disjoint(const Json& a, const Json& b, int32_t depth) {
  budget_.add_work(100);
  if (depth > 10 || !a.is_object() || !b.is_object()) return false;
  if (a.contains("$ref")) return disjoint(resolved(a, "oneOf"), b, depth + 1);
  if (b.contains("$ref")) return disjoint(a, resolved(b, "oneOf"), depth + 1);
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto each = [&](const Json& list, const Json& other) {
      return std::all_of(list.begin(), list.end(), [&](const Json& one) {
        return disjoint(one, other, depth + 1);
      });
    };
    if (a.contains(key)) return a[key].is_array() && each(a[key], b);
    if (b.contains(key)) return b[key].is_array() && each(b[key], a);
  }
  const auto values_a = values_of(a, "oneOf"), values_b = values_of(b, "oneOf");
  if (values_a && values_b) {
    budget_.add_work(int64_t(values_a->size() * values_b->size()));
    return std::none_of(values_a->begin(), values_a->end(), [&](const Json& value) {
      return std::count(values_b->begin(), values_b->end(), value) > 0;
    });
  }
  const auto types = [](const Json& schema, const std::optional<std::vector<Json>>& values) {
    std::set<std::string> found;
    if (values) {
      for (const Json& value : *values) found.insert(type_of(value));
    } else {
      for (const std::string& type : types_of(schema, "oneOf"))
        found.insert(type == "integer" ? "number" : type);
    }
    return found;
  };
  const std::set<std::string> types_a = types(a, values_a), types_b = types(b, values_b);
  if (types_a.empty() || types_b.empty()) return false;  // any
  const auto typed = [](const Json& schema,
                        const auto& values) {  // else it is about one type, and allows the others
    return values || schema.contains("type");
  };
  const bool apart = typed(a, values_a) && typed(b, values_b) &&
                     std::none_of(types_a.begin(), types_a.end(), [&](const std::string& type) {
                       return types_b.count(type) > 0;
                     });
  const bool objects = types_a == types_b && types_a == std::set<std::string>{"object"};
  return apart || (objects && !values_a && !values_b && objects_disjoint(a, b, depth));
}

// By a property that both require.
bool SchemaCompiler::objects_disjoint(const Json& a, const Json& b, int32_t depth) {
  const std::vector<std::string> in_a = required_of(a, "oneOf"), in_b = required_of(b, "oneOf");
  const std::set<std::string> both(in_b.begin(), in_b.end());
  return std::any_of(in_a.begin(), in_a.end(), [&](const std::string& name) {
    const auto has = [&](const Json& schema) {
      return schema.contains("properties") && schema["properties"].contains(name);
    };
    return both.count(name) && has(a) && has(b) &&
           disjoint(a["properties"][name], b["properties"][name], depth + 1);
  });
}

}  // namespace horner::grammar
