#include "core/toml.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cmath>
#include <sstream>

#include "core/check.h"

namespace horner {
namespace {

Json to_json(const toml::node& node, const std::string& key, std::map<std::string, int>& lines) {
  lines[key] = static_cast<int>(node.source().begin.line);
  if (const toml::table* table = node.as_table()) {
    Json json = Json::object();
    for (const auto& [name, child] : *table) {
      const std::string path =
          key.empty() ? std::string(name) : fmt::format("{}.{}", key, name.str());
      json[std::string(name)] = to_json(child, path, lines);
    }
    return json;
  }
  if (const toml::array* array = node.as_array()) {
    Json json = Json::array();
    for (const toml::node& child : *array) json.push_back(to_json(child, key, lines));
    return json;
  }
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  std::ostringstream date;
  node.visit([&](const auto& value) { date << value; });
  return date.str();
}

bool is_bare(const std::string& key) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  return !key.empty() && std::all_of(key.begin(), key.end(), plain);
}

std::string quote(const std::string& text) {
  std::string quoted = to_line(text);  // JSON's escapes are TOML's too, save that TOML escapes DEL
  for (size_t at = 0; (at = quoted.find('\x7f', at)) != std::string::npos;)
    quoted.replace(at, 1, "\\u007f");
  return quoted;
}

std::string format_key(const std::string& key) { return is_bare(key) ? key : quote(key); }

std::string format_value(const Json& json) {
  if (json.is_null()) return "\"none\"";
  if (json.is_string()) return quote(json.get<std::string>());
  if (json.is_number_float() && !std::isfinite(json.get<double>()))
    return fmt::format("{}", json.get<double>());
  if (!json.is_array()) return to_line(json);
  std::string list;
  for (const Json& item : json) list += (list.empty() ? "" : ", ") + format_value(item);
  return "[" + list + "]";
}

void format_table(const Json& table, const std::string& name, std::string& out) {
  for (const auto& [key, value] : table.items()) {
    if (!value.is_object()) out += format_key(key) + " = " + format_value(value) + "\n";
  }
  for (const auto& [key, value] : table.items()) {
    if (!value.is_object()) continue;
    const std::string inner = name.empty() ? format_key(key) : name + "." + format_key(key);
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", inner);
    format_table(value, inner, out);
  }
}

}  // namespace

TomlDocument parse_toml(std::string_view text, const std::string& source) {
  try {
    TomlDocument document;
    document.json = to_json(toml::parse(text), "", document.lines);
    return document;
  } catch (const toml::parse_error& error) {
    throw UsageError("{}:{}: {}", source, error.source().begin.line, error.description());
  }
}

std::string format_toml(const Json& json) {
  std::string out;
  format_table(json, "", out);
  return out;
}

}  // namespace horner
