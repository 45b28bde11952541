// A short name for bytes: FNV-1a of 64 bits, as 16 hex digits. For manifests, not against forgery.
//
//   h = 14695981039346656037;  for every byte b: h = (h ^ b) 1099511628211 mod 2^64
#pragma once

#include <string>
#include <string_view>

namespace horner {

std::string hash_of(std::string_view bytes);

}  // namespace horner
