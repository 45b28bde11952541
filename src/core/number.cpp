#include "core/number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace horner {

std::string short_number(double x) {
  if (x == std::floor(x) && std::abs(x) < 1e6) return fmt::format("{:.0f}", x);
  return fmt::format("{:.1e}", x);
}

std::string short_bytes(double x) {
  if (x < 1024) return fmt::format("{:.0f} B", x);
  if (x < 1024 * 1024) return fmt::format("{:.4g} KiB", x / 1024);
  if (x < 1000.0 * 1024 * 1024) return fmt::format("{:.3g} MiB", x / 1024 / 1024);
  return fmt::format("{:.3g} GiB", x / 1024 / 1024 / 1024);
}

std::string signed_number(double x, int places) {
  const std::string text = fmt::format("{:+.{}f}", x, places);
  return text.find_first_of("123456789") == std::string::npos && std::isfinite(x) ? text.substr(1)
                                                                                  : text;
}

std::string short_time(double seconds) {
  const auto s = int64_t(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string short_count(double x) {
  if (x < 1e3) return fmt::format("{:.0f}", x);
  if (x < 1e6) return fmt::format("{:.3g}k", x / 1e3);
  if (x < 1e9) return fmt::format("{:.3g}M", x / 1e6);
  if (x < 1e12) return fmt::format("{:.3g}G", x / 1e9);
  return fmt::format("{:.3g}T", x / 1e12);
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos)
    return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Json number_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(); }
double number_or_nan(const Json& json) { return json.is_number() ? json.get<double>() : NAN; }

}  // namespace horner
