// XXH3 of 128 bits, as 32 hexadecimal digits: what `xxh128sum` prints. It tells files apart; it is no
// protection against somebody who wants two to look alike.
#pragma once

#include <string>
#include <string_view>

namespace horner {

std::string xxh128(std::string_view bytes);

}  // namespace horner
