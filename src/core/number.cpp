#include "core/number.h"

#include <fmt/format.h>

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

}  // namespace horner
