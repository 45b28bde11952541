// Bits that nobody can foresee.
#pragma once

#include <unistd.h>

#include <cstdint>

#include "core/check.h"

namespace horner {

// std::random_device asks the CPU what it can do each time one is made, which a virtual machine traps.
inline uint64_t random_bits() {
  uint64_t bits = 0;
  if (::getentropy(&bits, sizeof bits) != 0) throw RunError("the machine has no random numbers");
  return bits;
}

}  // namespace horner
