#include "core/json.h"

#include "core/check.h"
#include "core/json_builder.h"

namespace horner {

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

Json parse_json(std::string_view text, const std::string& source) {
  try {
    return build_json<Json>(text, kJsonDepth);
  } catch (const DataError& error) {
    throw DataError("{}: {}", source, error.what());
  }
}

}  // namespace horner
