// Numbers of settings that have a least and a most value.
#pragma once

#include <cstdint>

#include "core/check.h"

namespace horner {

// UsageError unless the value of the setting lies in its range.
inline void check_range(const char* setting, int64_t value, int64_t least, int64_t most) {
  HORNER_CHECK(
      least <= value && value <= most,
      "{} must lie in {} .. {}, got {}",
      setting,
      least,
      most,
      value
  );
}

}  // namespace horner
