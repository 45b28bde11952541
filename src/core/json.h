// JSON that keeps the order in which keys were declared.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace horner {

using Json = nlohmann::ordered_json;

// One line. Bytes that are not UTF-8 become U+FFFD, so that a value can always be shown.
std::string to_line(const Json& json);

bool is_utf8(const std::string& text);

// DataError that names the source and the place when the text is not JSON.
Json parse_json(std::string_view text, const std::string& source);

}  // namespace horner
