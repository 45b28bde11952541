// TOML text to and from JSON; toml++ stays behind this header.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/json.h"

namespace horner {

struct TomlDocument {
  Json json;
  std::map<std::string, int> lines;  // of each key with its tables: "model.mixer.order"
};

inline constexpr int kTomlDepth = 16;  // tables and lists inside each other

// Linear in the text, but for sorting keys. UsageError "source:line: …" when it is not TOML or nested deeper than kTomlDepth.
TomlDocument parse_toml(std::string_view text, const std::string& source);

// Tables in the order of the JSON; null, which TOML lacks, is written as "none".
std::string format_toml(const Json& json);

}  // namespace horner
