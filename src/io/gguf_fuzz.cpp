// fuzz-sources: src/io/gguf_header.cpp src/io/gguf_blocks.cpp src/core/json.cpp
//
// Any bytes are refused with a DataError, or all tensors lie inside the file and can be dequantised.
#include <cstdlib>
#include <vector>

#include "core/check.h"
#include "io/gguf_header.h"

namespace horner {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Every accessor on every key: each gives the value or a DataError.
void read_values(const GgufHeader& header) {
  for (const auto& pair : header.pairs) {
    const std::string& key = pair.first;
    const uint64_t count = pair.second.count;
    const auto tried = [](auto&& call) {
      try {
        call();
        return 1;
      } catch (const DataError&) {
        return 0;
      }
    };
    const int readings = tried([&] { require(header.text(key).has_value()); }) +
                         tried([&] { header.integer(key); }) + tried([&] { header.number(key); }) +
                         tried([&] { header.flag(key); }) +
                         tried([&] { require(header.texts(key).size() == count); }) +
                         tried([&] { require(header.numbers(key).size() == count); });
    require(readings <= 2);  // an integer is a number too
  }
}

void parse(std::string_view file) {
  const GgufHeader header = parse_gguf(file, "fuzz");
  read_values(header);
  for (const GgufTensor& tensor : header.tensors) {
    require(tensor.begin <= file.size() && tensor.bytes <= file.size() - tensor.begin);
    int64_t weights = 1;
    for (const int64_t size : tensor.shape) weights *= size;
    const int64_t blocks = weights / tensor.type->weights;
    require(int64_t(tensor.bytes) == blocks * tensor.type->bytes);
    std::vector<float> values(size_t(tensor.type->weights));
    const auto* data = reinterpret_cast<const std::byte*>(file.data()) + tensor.begin;
    for (int64_t i = 0; i < blocks; ++i)
      tensor.type->dequantise(data + i * tensor.type->bytes, values.data());
  }
}

}  // namespace
}  // namespace horner

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    horner::parse({reinterpret_cast<const char*>(data), size});
  } catch (const horner::DataError&) {
  }
  return 0;
}
