// Numbers as people read them, in tables, pages and sentences; and as JSON holds them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"

namespace horner {

std::string short_number(double x);               // 0, 3.1e-15, 12
std::string short_bytes(double x);                // 512 B, 16 KiB, 20.5 MiB, 1.25 GiB
std::string short_count(double x);                // 950, 12.3k, 4.56M
std::string signed_number(double x, int places);  // +1.50, -0.25; what rounds to zero has no sign
std::string short_time(double seconds);           // 12 s, 3:05, 1:02:45

std::optional<int64_t> whole_number(std::string_view text);  // of digits alone, below 10^18

// JSON has neither NaN nor infinity. Both are written as null, and null is read as NaN.
Json number_or_null(double x);
double number_or_nan(const Json& json);

}  // namespace horner
