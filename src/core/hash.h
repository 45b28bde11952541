// XXH3 of 128 bits, as 32 hexadecimal digits: what `xxh128sum` prints. It tells files apart, but does not protect against
// files that were made to have the same hash.
#pragma once

#include <string>
#include <string_view>

namespace horner {

std::string xxh128(std::string_view bytes);

}  // namespace horner
