// Errors: one exception type per exit code. The library throws; main prints a line and exits.
//
//   HORNER_CHECK(order >= 0, "[power] order must be at least 0, got {}", order);
//   throw DataError("{}: cannot be opened", path);
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace horner {

struct Error : std::runtime_error {
  Error(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
  int exit_code;
};

template <int kExitCode>
struct ErrorOf : Error {
  template <class... Args>
  explicit ErrorOf(fmt::format_string<Args...> format, Args&&... args)
      : Error(kExitCode, fmt::format(format, std::forward<Args>(args)...)) {}
};

using RunError = ErrorOf<1>;            // the run failed
using UsageError = ErrorOf<2>;          // arguments or configuration
using DataError = ErrorOf<3>;           // a data or model file is missing or malformed
using ThresholdError = ErrorOf<4>;      // a check that the user asked for failed
using DeviceError = ErrorOf<5>;         // no such device, or out of memory
using InterruptedError = ErrorOf<130>;  // Ctrl-C

}  // namespace horner

// Throws UsageError; the arguments are evaluated only on failure.
#define HORNER_CHECK(condition, ...)                           \
  do {                                                         \
    if (!(condition)) throw ::horner::UsageError(__VA_ARGS__); \
  } while (false)
