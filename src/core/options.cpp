#include "core/options.h"

#include "core/check.h"
#include "core/file.h"
#include "core/nearest.h"
#include "core/spec.h"
#include "core/toml.h"

namespace horner {
namespace {

std::string_view leaf(std::string_view name) { return name.substr(name.rfind('.') + 1); }

std::string unknown_key(const Fields& fields, std::string_view key) {
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  if (nearest(key, names).empty()) {  // the right name in another table
    for (const std::string& name : names) {
      if (leaf(name) == leaf(key))
        return fmt::format("unknown key '{}'; did you mean '{}'?", key, name);
    }
  }
  return unknown("key", key, names);
}

const Field* find(const Fields& fields, std::string_view name) {
  for (const Field& field : fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

bool is_table(const Fields& fields, const std::string& name) {
  for (const Field& field : fields) {
    if (field.name.starts_with(name + ".")) return true;
  }
  return false;
}

void read_table(
    const Fields& fields, const std::string& prefix, const Json& table, const Where& where
) {
  for (const auto& [key, value] : table.items()) {
    const std::string name = prefix + key;
    try {
      if (const Field* field = find(fields, name)) {
        set_json(*field, value);
        continue;
      }
      if (!is_table(fields, name)) throw UsageError("{}", unknown_key(fields, name));
      if (!value.is_object()) throw UsageError("{} must be a table, got {}", name, to_line(value));
    } catch (const UsageError& error) {
      throw UsageError("{}{}", where ? where(name) : "", error.what());
    }
    read_table(fields, name + ".", value, where);
  }
}

void insert(Json& root, std::string_view name, Json value) {
  Json* table = &root;
  for (size_t dot; (dot = name.find('.')) != std::string_view::npos; name.remove_prefix(dot + 1)) {
    table = &(*table)[std::string(name.substr(0, dot))];
  }
  (*table)[std::string(name)] = std::move(value);
}

}  // namespace

void set_initial(Fields& fields, const Fields& defaults) {
  for (size_t i = 0; i < fields.size(); ++i) fields[i].initial = get_json(defaults[i]);
}

Json to_json(const Fields& fields) {
  Json json = Json::object();
  for (const Field& field : fields) insert(json, field.name, get_json(field));
  return json;
}

Json changed(const Fields& fields) {
  Json json = Json::object();
  for (const Field& field : fields) {
    Json value = get_json(field);
    // As text: 0.0 and -0.0 are equal as numbers.
    if (to_line(value) != to_line(field.initial)) insert(json, field.name, std::move(value));
  }
  return json;
}

std::string to_toml(const Fields& fields) { return format_toml(changed(fields)); }

std::vector<Description> describe(const Fields& fields) {
  std::vector<Description> rows;
  for (const Field& field : fields) {
    rows.push_back({field.name, type_name(field), to_text(field.initial), field.help, field.choices}
    );
  }
  return rows;
}

void from_json(const Fields& fields, const Json& json, const Where& where) {
  HORNER_CHECK(json.is_object(), "settings must be an object, got {}", to_line(json));
  read_table(fields, "", json, where);
}

void from_toml(const Fields& fields, std::string_view toml, const std::string& source) {
  const TomlDocument document = parse_toml(toml, source);
  from_json(fields, document.json, [&](const std::string& key) {
    return fmt::format("{}:{}: ", source, document.lines.at(key));
  });
}

void from_toml_file(const Fields& fields, const std::string& path) {
  from_toml(fields, read_file(path), path);
}

void from_text(const Fields& fields, std::string_view text) {
  for (const TypeSpec::Setting& setting : parse_settings(text))
    set(fields, setting.name, setting.value);
}

void set(const Fields& fields, std::string_view name, std::string_view text) {
  const Field* field = find(fields, name);
  HORNER_CHECK(field, "{}", unknown_key(fields, name));
  set(*field, text);
}

}  // namespace horner
