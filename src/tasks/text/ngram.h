// The baseline of counting: the interpolated Witten-Bell n-gram over bytes.
//
//   P_k(b | h) = (c(h b) + d(h) P_{k-1}(b | h')) / (c(h) + d(h))        P_{-1} = 1/256
//
// h: the k bytes before, h' without the first; c: how often, d: how many different bytes follow.
#pragma once

#include <string_view>
#include <vector>

namespace horner {

// Bits per byte of `test` for each order from 0 to `order` <= 6, after counting in `train`. Contexts
// do not reach before the beginning of `test`.
std::vector<double> ngram_bits(std::string_view train, std::string_view test, int order);

}  // namespace horner
