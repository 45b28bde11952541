// fuzz-sources: src/io/safetensors_header.cpp src/core/json.cpp
//
// Any bytes are refused with a DataError, or lie inside the file and round-trip.
#include <algorithm>
#include <cstdlib>

#include "core/check.h"
#include "io/safetensors_header.h"

namespace horner {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void parse_and_format(std::string_view file) {
  SafetensorsHeader header = parse_safetensors(file, "fuzz");
  size_t end = 0;
  for (const TensorInfo& tensor : header.tensors) {
    require(tensor.begin == end && tensor.end >= tensor.begin);
    end = tensor.end;
  }
  require(header.data_begin + end == file.size());

  const std::string bytes = format_safetensors(header);
  const SafetensorsHeader again = parse_safetensors(bytes + std::string(end, '\0'), "fuzz");
  require(again.metadata == header.metadata && again.tensors.size() == header.tensors.size());
  for (const TensorInfo& tensor : header.tensors) {
    const auto same = [&](const TensorInfo& other) {
      return other.name == tensor.name && other.dtype == tensor.dtype &&
             other.shape == tensor.shape && other.begin == tensor.begin;
    };
    require(std::any_of(again.tensors.begin(), again.tensors.end(), same));
  }
}

}  // namespace
}  // namespace horner

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    horner::parse_and_format({reinterpret_cast<const char*>(data), size});
  } catch (const horner::DataError&) {
  }
  return 0;
}
