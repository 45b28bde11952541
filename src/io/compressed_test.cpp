#include "io/compressed.h"

#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>

#include <filesystem>

#include "core/check.h"
#include "core/file.h"

namespace horner {
namespace {

std::string text_of(size_t size) {
  std::string text;
  for (size_t i = 0; text.size() < size; ++i) text += fmt::format("{} ", i * i);
  return text;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string bytes(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = uInt(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = uInt(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

std::string xz(const std::string& text) {
  std::string bytes(lzma_stream_buffer_bound(text.size()), '\0');
  size_t size = 0;
  EXPECT_EQ(
      lzma_easy_buffer_encode(
          6,
          LZMA_CHECK_CRC64,
          nullptr,
          reinterpret_cast<const uint8_t*>(text.data()),
          text.size(),
          reinterpret_cast<uint8_t*>(bytes.data()),
          &size,
          bytes.size()
      ),
      LZMA_OK
  );
  bytes.resize(size);
  return bytes;
}

std::string error_of(const std::string& bytes, const std::string& source, size_t limit) {
  try {
    decompress(bytes, source, limit);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Compressed, KnownByContent) {
  for (const size_t size : {0, 1, 1000, 1'000'000}) {
    const std::string text = text_of(size);
    for (const std::string& bytes : {text, gzip(text), xz(text)}) {
      EXPECT_EQ(decompress(bytes, "f", text.size()), text);
    }
    EXPECT_EQ(decompress(gzip(text) + gzip("end"), "f.gz", text.size() + 3), text + "end");
    EXPECT_EQ(decompress(xz(text) + xz("end"), "f.xz", text.size() + 3), text + "end");
  }
}

TEST(Compressed, EveryShorterFileIsRefused) {
  const std::string text = text_of(500);
  for (const bool is_gzip : {true, false}) {
    const std::string bytes = is_gzip ? gzip(text) : xz(text);
    const std::string name = is_gzip ? "f.gz" : "f.xz";
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_NE(error_of(bytes.substr(0, size), name, 1000), "no error") << name << size;
    }
    EXPECT_EQ(
        error_of(bytes.substr(0, bytes.size() - 1), name, 1000),
        fmt::format("{}: the {} data are cut short", name, is_gzip ? "gzip" : "xz")
    );
  }
  EXPECT_EQ(error_of("plain", "f.gz", 9), "f.gz: is not a .gz file");
  EXPECT_EQ(error_of("", "f.xz", 9), "f.xz: is not a .xz file");
}

TEST(Compressed, DamageAndLimit) {
  const std::string text = text_of(5000);
  for (const bool is_gzip : {true, false}) {
    const std::string good = is_gzip ? gzip(text) : xz(text);
    std::string bad = good;
    bad[bad.size() / 2] = char(bad[bad.size() / 2] ^ 1);
    const std::string expected =
        is_gzip ? "f: the gzip data are damaged: " : "f: the xz data are damaged";
    EXPECT_EQ(error_of(bad, "f", 10'000).substr(0, expected.size()), expected);
    EXPECT_NE(error_of(good + "rest", "f", 10'000), "no error");
    EXPECT_EQ(error_of(good, "f", text.size()), "no error");
    EXPECT_EQ(
        error_of(good, "f", text.size() - 1),
        fmt::format("f: holds more than {} bytes", text.size() - 1)
    );
  }
  EXPECT_EQ(error_of(text, "f", 10), "f: holds more than 10 bytes");
}

TEST(Compressed, BombsAreRefused) {
  const std::string zeros(80 << 20, '\0');
  for (const std::string& bytes : {gzip(zeros), xz(zeros)}) {
    const std::string error = error_of(bytes, "f", kDecompressedLimit);
    EXPECT_NE(error.find("times as long as its"), std::string::npos) << error;
    EXPECT_TRUE(error.ends_with("refused beyond 100")) << error;
  }
  EXPECT_EQ(error_of(gzip(zeros.substr(0, 60 << 20)), "f", kDecompressedLimit), "no error");
}

TEST(Compressed, Files) {
  const std::string path = std::filesystem::temp_directory_path() / "horner_compressed_test.xz";
  write_file(path, xz("text"));
  EXPECT_EQ(read_decompressed(path), "text");
  std::filesystem::remove(path);
  EXPECT_THROW(read_decompressed(path), DataError);
  EXPECT_THROW(read_decompressed("."), DataError);
}

}  // namespace
}  // namespace horner
