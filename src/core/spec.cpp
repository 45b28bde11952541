#include "core/spec.h"

#include <algorithm>

#include "core/check.h"

namespace horner {
namespace {

int64_t open_brackets(std::string_view text) {
  return std::count(text.begin(), text.end(), '[') - std::count(text.begin(), text.end(), ']');
}

}  // namespace

std::vector<TypeSpec::Setting> parse_settings(std::string_view text) {
  std::vector<TypeSpec::Setting> settings;
  while (!text.empty()) {
    size_t end = 0;
    for (int depth = 0; end < text.size() && (depth > 0 || text[end] != ','); ++end) {
      depth += (text[end] == '[') - (text[end] == ']');
    }
    const std::string_view item = text.substr(0, end);
    const size_t equals = item.find('=');
    HORNER_CHECK(equals != std::string_view::npos, "a setting must be name=value, got '{}'", item);
    settings.push_back({std::string(item.substr(0, equals)), std::string(item.substr(equals + 1))});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return settings;
}

TypeSpec TypeSpec::parse(std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  return {
      std::string(text.substr(0, colon)),
      parse_settings(text.substr(std::min(colon + 1, text.size())))};
}

std::string TypeSpec::settings_text() const {
  std::string text;
  for (const Setting& s : settings) text += (text.empty() ? "" : ",") + s.name + "=" + s.value;
  return text;
}

std::string TypeSpec::text() const {
  return settings.empty() ? name : name + ":" + settings_text();
}

std::optional<std::string> TypeSpec::find(std::string_view setting) const {
  const auto found = std::find_if(settings.rbegin(), settings.rend(), [&](const Setting& s) {
    return s.name == setting;
  });
  if (found == settings.rend()) return {};
  return found->value;
}

std::vector<std::string> whole_specs(const std::vector<std::string>& items) {
  std::vector<std::string> specs;
  for (const std::string& item : items) {
    const bool is_setting = item.find('=') < item.find(':');
    if (!specs.empty() && (is_setting || open_brackets(specs.back()) > 0)) {
      specs.back() += (specs.back().find(':') == std::string::npos ? ":" : ",") + item;
    } else {
      specs.push_back(item);
    }
  }
  return specs;
}

}  // namespace horner
