#include "core/hash.h"

#include <fmt/format.h>

#include <cstdint>

namespace horner {

std::string hash_of(std::string_view bytes) {
  uint64_t h = 14695981039346656037u;
  for (const char b : bytes) h = (h ^ static_cast<unsigned char>(b)) * 1099511628211u;
  return fmt::format("{:016x}", h);
}

}  // namespace horner
