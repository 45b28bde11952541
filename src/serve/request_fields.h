// Fields of a JSON request: a value of the right type in its range, or an ApiError that names the field.
// null is no value.
#pragma once

#include <optional>
#include <string>

#include "serve/api_error.h"

namespace horner {

class RequestFields {
 public:
  explicit RequestFields(const Json& object) : object_(object) {}

  const Json* find(const std::string& name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] static void wrong(
      const std::string& name, const std::string& rule, const Json& got
  ) {
    const std::string shown = to_line(got);
    throw ApiError(
        400,
        "invalid_value",
        "{} must be {}, got {}",
        name,
        rule,
        shown.size() > 100 ? shown.substr(0, shown.find_last_not_of('\x80', 90)) + ".." : shown
    );
  }

  std::optional<double> number(const std::string& name, double low, double high) const {
    const Json* value = find(name);
    if (!value) return {};
    if (!value->is_number() || value->get<double>() < low || value->get<double>() > high)
      wrong(name, fmt::format("a number in {} .. {}", low, high), *value);
    return value->get<double>();
  }
  std::optional<int64_t> integer(const std::string& name, int64_t low, int64_t high) const {
    const Json* value = find(name);
    if (!value) return {};
    const bool whole =
        value->is_number_integer() &&
        !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t(INT64_MAX));
    if (!whole || value->get<int64_t>() < low || value->get<int64_t>() > high)
      wrong(name, fmt::format("a whole number in {} .. {}", low, high), *value);
    return value->get<int64_t>();
  }
  bool flag(const std::string& name) const {
    const Json* value = find(name);
    if (value && !value->is_boolean()) wrong(name, "true or false", *value);
    return value && value->get<bool>();
  }
  std::optional<std::string> text(const std::string& name) const {
    const Json* value = find(name);
    if (value && !value->is_string()) wrong(name, "a text", *value);
    return value ? std::optional(value->get<std::string>()) : std::nullopt;
  }
  void refuse(const std::string& name, const std::string& why) const {
    if (find(name)) throw ApiError(400, "unsupported", "{} is not supported: {}", name, why);
  }

 private:
  const Json& object_;
};

}  // namespace horner
