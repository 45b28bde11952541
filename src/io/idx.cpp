#include "io/idx.h"

#include "core/check.h"
#include "io/compressed.h"

namespace horner {

Idx parse_idx(std::string content, const std::string& source) {
  const auto byte = [&](size_t i) { return uint64_t{static_cast<unsigned char>(content[i])}; };
  if (content.size() < 4 || byte(0) != 0 || byte(1) != 0) {
    throw DataError("{}: not an IDX file", source);
  }
  if (byte(2) != 8) throw DataError("{}: IDX type {}; only bytes (8) are read", source, byte(2));
  const size_t header = 4 + 4 * byte(3);
  if (content.size() < header) throw DataError("{}: IDX header is cut short", source);
  Idx idx;
  const uint64_t limit = uint64_t{1} << 40;
  uint64_t total = 1;
  for (size_t at = 4; at < header; at += 4) {
    const uint64_t n = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    idx.sizes.push_back(int64_t(n));
    if (n > 0 && total > limit / n) throw DataError("{}: IDX sizes are absurd", source);
    total *= n;
  }
  if (content.size() - header != total) {
    throw DataError("{}: IDX says {} bytes, holds {}", source, total, content.size() - header);
  }
  content.erase(0, header);
  idx.bytes = std::move(content);
  return idx;
}

Idx read_idx(const std::string& path) { return parse_idx(read_decompressed(path), path); }

}  // namespace horner
