#include "report/assets.h"

#include <cstdint>

namespace horner {

std::string policy_hash(const Asset& asset) {
  static const char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string hex = asset.sha256;
  std::string text = "'sha256-";
  for (size_t i = 0; i < hex.size(); i += 6) {  // three bytes are four digits of base 64
    std::string three = hex.substr(i, 6);
    const size_t digits = three.size() * 4 / 6 + (three.size() < 6 ? 1 : 0);
    three.resize(6, '0');
    const uint32_t bits = uint32_t(std::stoul(three, nullptr, 16));
    for (size_t d = 0; d < 4; ++d) text += d < digits ? kDigits[bits >> (18 - 6 * d) & 63] : '=';
  }
  return text + "'";
}

}  // namespace horner
