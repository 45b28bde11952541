#include "tasks/text/token_stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "core/hash.h"

namespace horner {
namespace {

constexpr char kMagic[] = "HORNTOK2";
constexpr size_t kPiece = 1 << 16;  // tokens

struct Header {
  char magic[8];
  uint64_t width;
  uint64_t sizes[3];
  double bytes[3];
};

// The hash of a file from the hashes of its pieces, since a file is written piece by piece.
struct PiecesHash {
  std::string pieces;
  void add(const void* bytes, size_t count) {
    pieces += xxh128({static_cast<const char*>(bytes), count});
  }
  std::string value() const { return xxh128(pieces); }
};

template <class Token>
void write_stream(AtomicFile& file, const TokenStream& stream, PiecesHash& hash) {
  std::vector<Token> buffer;
  for (int64_t at = 0; at < stream.size();) {
    buffer.clear();
    for (; at < stream.size() && buffer.size() < kPiece; ++at) {
      buffer.push_back(static_cast<Token>(stream[at]));
    }
    file.write(buffer.data(), buffer.size() * sizeof(Token));
    hash.add(buffer.data(), buffer.size() * sizeof(Token));
  }
}

}  // namespace

TokenStream::TokenStream(std::vector<uint32_t> tokens) : size_(int64_t(tokens.size())) {
  const auto owner = std::make_shared<const std::vector<uint32_t>>(std::move(tokens));
  wide_ = owner->data();
  owner_ = owner;
}

TokenStream::TokenStream(
    std::shared_ptr<const MappedFile> file, size_t begin, size_t width, int64_t size
)
    : owner_(file), size_(size) {
  const std::byte* data = file->data() + begin;
  if (width == 2) {
    narrow_ = reinterpret_cast<const uint16_t*>(data);
  } else {
    wide_ = reinterpret_cast<const uint32_t*>(data);
  }
}

TokenStream TokenStream::slice(int64_t begin, int64_t end) const {
  TokenStream part = *this;
  if (narrow_) part.narrow_ += begin;
  if (wide_) part.wide_ += begin;
  part.size_ = end - begin;
  return part;
}

std::optional<TokenSplits> read_tokens(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const auto file = std::make_shared<const MappedFile>(path);
  Header header{};
  if (file->size() < sizeof header) throw DataError("{}: not a file of tokens", path);
  std::memcpy(&header, file->data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, 8) != 0 || (header.width != 2 && header.width != 4)) {
    throw DataError("{}: not a file of tokens", path);
  }
  TokenSplits splits;
  PiecesHash hash;
  hash.add(&header, sizeof header);
  size_t begin = sizeof header;
  for (size_t i = 0; i < 3; ++i) {
    if (header.sizes[i] > (file->size() - begin) / header.width) {
      throw DataError("{}: cut short", path);
    }
    splits.streams[i] = TokenStream(file, begin, header.width, int64_t(header.sizes[i]));
    splits.bytes[i] = header.bytes[i];
    for (const size_t end = begin + header.sizes[i] * header.width; begin < end;) {
      const size_t count = std::min(kPiece * header.width, end - begin);
      hash.add(file->data() + begin, count);
      begin += count;
    }
  }
  const std::string_view rest(
      reinterpret_cast<const char*>(file->data()) + begin, file->size() - begin
  );
  if (rest != hash.value()) throw DataError("{}: is damaged: its checksum is another", path);
  return splits;
}

void write_tokens(const std::string& path, const TokenSplits& splits, int64_t vocabulary) {
  Header header{};
  std::memcpy(header.magic, kMagic, 8);
  header.width = vocabulary <= 65536 ? 2 : 4;
  for (size_t i = 0; i < 3; ++i) {
    header.sizes[i] = uint64_t(splits.streams[i].size());
    header.bytes[i] = splits.bytes[i];
  }
  AtomicFile file(path);
  PiecesHash hash;
  file.write(&header, sizeof header);
  hash.add(&header, sizeof header);
  for (const TokenStream& stream : splits.streams) {
    header.width == 2 ? write_stream<uint16_t>(file, stream, hash)
                      : write_stream<uint32_t>(file, stream, hash);
  }
  const std::string digits = hash.value();
  file.write(digits.data(), digits.size());
  file.commit();
}

TokenStream read_token_file(const std::string& path) {
  constexpr size_t kHeader = 1024;
  constexpr int32_t kGpt2 = 20240520, kLlama3 = 20240801;
  const auto file = std::make_shared<const MappedFile>(path);
  int32_t head[3] = {};  // magic, version, count
  if (file->size() >= kHeader) std::memcpy(head, file->data(), sizeof head);
  if (head[0] == kGpt2 || head[0] == kLlama3) {
    const size_t width = head[0] == kGpt2 ? 2 : 4;
    if (head[2] < 0 || file->size() != kHeader + width * size_t(head[2])) {
      throw DataError("{}: says {} tokens, which is not its size", path, head[2]);
    }
    return {file, kHeader, width, head[2]};
  }
  if (file->size() == 0 || file->size() % 2 != 0) {
    throw DataError("{}: not a file of tokens: {} bytes", path, file->size());
  }
  return {file, 0, 2, int64_t(file->size() / 2)};
}

}  // namespace horner
