// fuzz-sources: src/core/toml.cpp src/core/json.cpp
//
// Any text is parsed, or refused with a UsageError.
#include "core/check.h"
#include "core/toml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    horner::parse_toml({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const horner::UsageError&) {
  }
  return 0;
}
