// IDX files of bytes, as MNIST and its kin are kept in, plain or compressed.
//
//   0 0 8 n, n sizes as big-endian 32-bit numbers, the bytes
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace horner {

struct Idx {
  std::vector<int64_t> sizes;
  std::string bytes;
};

// DataError that names the source where it is not one.
Idx parse_idx(std::string content, const std::string& source);
Idx read_idx(const std::string& path);

}  // namespace horner
