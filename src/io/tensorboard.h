// Event files that TensorBoard reads: scalars over steps.
//
//   record = length u64 | masked crc32c of it | bytes of an Event | masked crc32c of them
//   masked(c) = ((c >> 15) | (c << 17)) + 0xa282ead8
//   Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5 }
//   Summary { repeated Value value = 1 }    Value { string tag = 1; float simple_value = 2 }
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace horner {

double seconds_since_1970();
uint32_t crc32c(std::string_view bytes);  // Castagnoli, as in RFC 3720

class TensorBoard {
 public:
  TensorBoard(const std::string& folder, double start);  // RunError where it cannot be written
  void scalar(const std::string& tag, int64_t step, double time, double value);
  void flush();

 private:
  void record(const std::string& event);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

}  // namespace horner
