#include "core/json.h"

#include "core/check.h"

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
    return Json::parse(text);
  } catch (const Json::exception& error) {
    const std::string_view what =
        error.what();  // "[json.exception.parse_error.101] parse error at …"
    throw DataError("{}: not JSON: {}", source, what.substr(what.find("] ") + 2));
  }
}

}  // namespace horner
