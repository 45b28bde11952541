#include "core/field.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/check.h"

namespace horner {
namespace {

Json write(bool value) { return value; }
Json write(int64_t value) { return value; }
Json write(const std::string& value) { return value; }

Json write(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

template <class T>
Json write(const std::optional<T>& value) {
  return value ? write(*value) : Json();
}

template <class T>
Json write(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(write(value));
  return json;
}

// read: returns false if the type does not fit.

bool read(const Json& json, bool& value) {
  if (!json.is_boolean()) return false;
  value = json.get<bool>();
  return true;
}

bool read(const Json& json, int64_t& value) {
  if (!json.is_number_integer()) return false;
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) return false;
  value = json.get<int64_t>();
  return true;
}

bool read(const Json& json, double& value) {
  if (json.is_number()) {
    value = json.get<double>();
  } else if (json == "inf" || json == "-inf") {
    value = json == "inf" ? INFINITY : -INFINITY;
  } else {
    return false;
  }
  return !std::isnan(value);  // no setting means anything by it
}

bool read(const Json& json, std::string& value) {
  if (!json.is_string() || !is_utf8(json.get_ref<const std::string&>())) return false;
  value = json.get<std::string>();
  return true;
}

template <class T>
bool read(const Json& json, std::optional<T>& value) {
  if (json.is_null() || json == "none") {
    value.reset();
    return true;
  }
  T inner{};
  if (!read(json, inner)) return false;
  value = inner;
  return true;
}

template <class T>
bool read(const Json& json, std::vector<T>& values) {
  if (!json.is_array()) return false;
  std::vector<T> list;
  for (const Json& item : json) {
    if (!read(item, list.emplace_back())) return false;
  }
  values = std::move(list);
  return true;
}

// parse: text that does not fit the type stays a string, which read then refuses.

template <class T>
Json parse(std::string_view text, const T*) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? write(number) : Json(text);
}

Json parse(std::string_view text, const bool*) {
  return text == "true" || text == "false" ? Json(text == "true") : Json(text);
}

Json parse(std::string_view text, const std::string*) { return text; }

template <class T>
Json parse(std::string_view text, const std::optional<T>*) {
  return text == "none" ? Json() : parse(text, static_cast<const T*>(nullptr));
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

template <class T>
Json parse(std::string_view text, const std::vector<T>*) {
  text = trim(text);
  if (text.starts_with('[') && text.ends_with(']')) text = trim(text.substr(1, text.size() - 2));
  Json list = Json::array();
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(",;"), text.size());
    list.push_back(parse(trim(text.substr(0, end)), static_cast<const T*>(nullptr)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return list;
}

std::string name_of(const bool*) { return "boolean"; }
std::string name_of(const int64_t*) { return "integer"; }
std::string name_of(const double*) { return "number"; }
std::string name_of(const std::string*) { return "text"; }

template <class T>
std::string name_of(const std::optional<T>*) {
  return name_of(static_cast<const T*>(nullptr)) + " or none";
}

template <class T>
std::string name_of(const std::vector<T>*) {
  return fmt::format("list of {}s", name_of(static_cast<const T*>(nullptr)));
}

bool among(const std::vector<std::string>& choices, const Json& value) {
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(), [&](auto& item) {
      return among(choices, item);
    });
  }
  return std::find(choices.begin(), choices.end(), value) != choices.end();
}

}  // namespace

Json get_json(const Field& field) {
  return std::visit([](const auto* value) { return write(*value); }, field.value);
}

void set_json(const Field& field, const Json& json) {
  const bool choosable = !field.choices.empty() && (json.is_string() || json.is_array());
  if (choosable && !among(field.choices, json)) {
    throw UsageError(
        "{} must be one of {}; got {}", field.name, fmt::join(field.choices, ", "), to_line(json)
    );
  }
  if (!std::visit([&](auto* value) { return read(json, *value); }, field.value)) {
    const std::string type = type_name(field);
    const char* article = type.starts_with('i') ? "an" : "a";
    const Json got = json.is_number_float() ? write(json.get<double>()) : json;
    throw UsageError("{} must be {} {}, got {}", field.name, article, type, to_line(got));
  }
}

void set(const Field& field, std::string_view text) {
  set_json(field, std::visit([&](const auto* value) { return parse(text, value); }, field.value));
}

std::string type_name(const Field& field) {
  return std::visit([](const auto* value) { return name_of(value); }, field.value);
}

std::string to_text(const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return to_line(value);
  std::vector<std::string> items;
  for (const Json& item : value) items.push_back(to_text(item));
  return fmt::format("[{}]", fmt::join(items, ","));
}

}  // namespace horner
