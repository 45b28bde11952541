// Files, plain or compressed by gzip or xz. The first bytes decide which, never the name.
#pragma once

#include <cstddef>
#include <string>

namespace horner {

constexpr size_t kDecompressedLimit = size_t{1} << 34;   // 16 GiB
constexpr size_t kMostGrowth = 100;                      // times the compressed size ..
constexpr size_t kAlwaysDecompressed = size_t{1} << 26;  // .. beyond 64 MiB

// What the file holds, decompressed. DataError that names the file and the reason when it is cut
// short, damaged, longer than `limit` bytes, a bomb (more than kMostGrowth times as long as compressed), or not compressed
// although its name ends in .gz or .xz.
std::string read_decompressed(const std::string& path, size_t limit = kDecompressedLimit);

// The same for bytes in memory; `source` is their name in an error.
std::string decompress(std::string bytes, const std::string& source, size_t limit);

}  // namespace horner
