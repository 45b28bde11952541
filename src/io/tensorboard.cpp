#include "io/tensorboard.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/check.h"

namespace horner {
namespace {

template <class T>
std::string bytes_of(T value) {  // little-endian, as every machine this runs on
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Protocol buffers: a key (field number, wire type), then the value.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += char(value | 0x80);
  return bytes + char(value);
}
std::string field(int number, double value) { return varint(number << 3 | 1) + bytes_of(value); }
std::string field(int number, float value) { return varint(number << 3 | 5) + bytes_of(value); }
std::string field(int number, int64_t value) {
  return varint(number << 3) + varint(uint64_t(value));
}
std::string field(int number, const std::string& value) {
  return varint(number << 3 | 2) + varint(value.size()) + value;
}

uint32_t masked(std::string_view bytes) {
  const uint32_t c = crc32c(bytes);
  return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

}  // namespace

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? 0x82f63b78u : 0);
      t[i] = c;
    }
    return t;
  }();
  uint32_t c = ~0u;
  for (const char byte : bytes) c = (c >> 8) ^ table[(c ^ uint8_t(byte)) & 0xff];
  return ~c;
}

TensorBoard::TensorBoard(const std::string& folder, double start)
    : path_(fmt::format("{}/events.out.tfevents.{:010}.horner", folder, int64_t(start))) {
  file_.reset(std::fopen(path_.c_str(), "wbe"));
  if (!file_) throw RunError("{}: cannot be written: {}", path_, std::strerror(errno));
  record(field(1, start) + field(3, std::string("brain.Event:2")));
}

void TensorBoard::scalar(const std::string& tag, int64_t step, double time, double value) {
  const std::string one = field(1, tag) + field(2, float(value));
  record(field(1, time) + field(2, step) + field(5, field(1, one)));
}

void TensorBoard::record(const std::string& event) {
  const std::string length = bytes_of(uint64_t(event.size()));
  const std::string all = length + bytes_of(masked(length)) + event + bytes_of(masked(event));
  if (std::fwrite(all.data(), 1, all.size(), file_.get()) != all.size())
    throw RunError("{}: cannot be written: {}", path_, std::strerror(errno));
}

void TensorBoard::flush() {
  if (std::fflush(file_.get()) != 0)
    throw RunError("{}: cannot be written: {}", path_, std::strerror(errno));
}

}  // namespace horner
