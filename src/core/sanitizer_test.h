// Whether this build has sanitizers (HORNER_PRESET=asan, asan-clang): they keep freed memory for a while, and memory around
// each object.
#pragma once

namespace horner {

#if defined(__SANITIZE_ADDRESS__)  // g++
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

}  // namespace horner
