// IDX files of bytes, the format of MNIST and similar sets, plain or compressed.
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

// DataError that names the source if it is not an IDX file.
Idx parse_idx(std::string content, const std::string& source);
Idx read_idx(const std::string& path);

}  // namespace horner
