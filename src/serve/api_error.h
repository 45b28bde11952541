// What a client did wrong, or why the server cannot help now: a status of HTTP and OpenAI's body of errors.
//
//   {"error": {"message": "max_tokens must be at least 1, got 0", "type": "invalid_request_error", "code": "invalid_value"}}
#pragma once

#include "core/check.h"
#include "core/json.h"

namespace horner {

struct ApiError : std::runtime_error {
  template <class... Args>
  ApiError(int http_status, std::string code_, fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)),
        status(http_status),
        code(std::move(code_)) {}
  int status;
  std::string code;

  Json json() const {
    const char* type = status == 401   ? "authentication_error"
                       : status == 404 ? "not_found_error"
                       : status == 429 ? "rate_limit_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    return {{"error", {{"message", what()}, {"type", type}, {"code", code}}}};
  }
};

}  // namespace horner
