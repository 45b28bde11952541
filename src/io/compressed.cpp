#include "io/compressed.h"

#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <memory>

#include "core/check.h"
#include "core/file.h"

namespace horner {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kXz("\xfd\x37zXZ\0", 6);
constexpr uint64_t kXzMemory = uint64_t{1} << 30;  // xz -9 needs 65 MiB
constexpr size_t kPiece = size_t{1} << 18;
constexpr char kCutShort[] = "{}: the {} data are cut short";

void check_limit(size_t size, size_t limit, const std::string& source) {
  if (size > limit) throw DataError("{}: holds more than {} bytes", source, limit);
}

// Text becomes 3 to 20 times as short; a file that was made to fill the memory, 1,000 times and more.
void check_bomb(size_t size, size_t compressed, const std::string& source) {
  if (size > kAlwaysDecompressed && size / kMostGrowth > compressed)
    throw DataError(
        "{}: is {} times as long as its {} bytes when decompressed, and more; refused beyond {}",
        source,
        size / compressed,
        compressed,
        kMostGrowth
    );
}

std::string gunzip(std::string_view bytes, const std::string& source, size_t limit) {
  const size_t compressed = bytes.size();
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw RunError("{}: zlib cannot start", source);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  const auto piece = std::make_unique<char[]>(kPiece);
  std::string text;
  for (;;) {
    if (stream.avail_in == 0) {  // zlib counts in 32 bits
      const size_t count = std::min(bytes.size(), kPiece);
      if (count == 0) throw DataError(kCutShort, source, "gzip");
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream.avail_in = static_cast<uInt>(count);
      bytes.remove_prefix(count);
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.get());
    stream.avail_out = kPiece;
    const int status = inflate(&stream, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      throw DataError(
          "{}: the gzip data are damaged: {}", source, stream.msg ? stream.msg : "unknown reason"
      );
    }
    text.append(piece.get(), kPiece - stream.avail_out);
    check_limit(text.size(), limit, source);
    check_bomb(text.size(), compressed, source);
    if (status == Z_STREAM_END) {
      if (stream.avail_in == 0 && bytes.empty()) return text;
      inflateReset(&stream);  // a file may consist of several members
    }
  }
}

std::string unxz(std::string_view bytes, const std::string& source, size_t limit) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kXzMemory, LZMA_CONCATENATED) != LZMA_OK) {
    throw RunError("{}: liblzma cannot start", source);
  }
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> guard(&stream, lzma_end);
  const auto piece = std::make_unique<char[]>(kPiece);
  stream.next_in = reinterpret_cast<const uint8_t*>(bytes.data());
  stream.avail_in = bytes.size();
  std::string text;
  for (;;) {
    stream.next_out = reinterpret_cast<uint8_t*>(piece.get());
    stream.avail_out = kPiece;
    const lzma_ret status = lzma_code(&stream, LZMA_FINISH);
    text.append(piece.get(), kPiece - stream.avail_out);
    check_limit(text.size(), limit, source);
    check_bomb(text.size(), bytes.size(), source);
    switch (status) {
      case LZMA_OK: break;
      case LZMA_STREAM_END: return text;
      case LZMA_BUF_ERROR: throw DataError(kCutShort, source, "xz");
      case LZMA_MEMLIMIT_ERROR:
        throw DataError("{}: the xz data need more than {} bytes to decode", source, kXzMemory);
      case LZMA_OPTIONS_ERROR:
        throw DataError("{}: the xz data ask for a filter that liblzma does not know", source);
      default: throw DataError("{}: the xz data are damaged", source);
    }
  }
}

}  // namespace

std::string decompress(std::string bytes, const std::string& source, size_t limit) {
  if (bytes.starts_with(kGzip)) return gunzip(bytes, source, limit);
  if (bytes.starts_with(kXz)) return unxz(bytes, source, limit);
  for (const std::string_view ending : {".gz", ".xz"}) {
    if (source.ends_with(ending)) throw DataError("{}: is not a {} file", source, ending);
  }
  check_limit(bytes.size(), limit, source);
  return bytes;
}

std::string read_decompressed(const std::string& path, size_t limit) {
  return decompress(read_file(path), path, limit);
}

}  // namespace horner
