// The header of a safetensors file, checked in full before a byte of data is touched.
// No torch here: this part is fuzzed.
//
//   8 bytes      n, little endian
//   n bytes      {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [0,24]},
//                 "__metadata__": {"format": "pt"}} and spaces
//   the rest     data; the tensors cover it from end to end without overlap or hole
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace horner {

struct Dtype {
  std::string_view name;
  int64_t bytes;
};

// Tensors are laid out in this order, which is the reference implementation's: falling alignment.
inline constexpr Dtype kDtypes[] = {
    {"U64", 8},
    {"I64", 8},
    {"F64", 8},
    {"C64", 8},
    {"F32", 4},
    {"U32", 4},
    {"I32", 4},
    {"BF16", 2},
    {"F16", 2},
    {"U16", 2},
    {"I16", 2},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
    {"I8", 1},
    {"U8", 1},
    {"BOOL", 1},
};

const Dtype* find_dtype(std::string_view name);  // null when it is not on the list

struct TensorInfo {
  std::string name;
  const Dtype* dtype;          // into kDtypes
  std::vector<int64_t> shape;  // its product, in bytes, fits int64_t
  size_t begin, end;           // bytes, from data_begin
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  size_t data_begin = 0;
};

// `file` is the whole file, `source` its name for the DataError that says what is wrong and where.
SafetensorsHeader parse_safetensors(std::string_view file, const std::string& source);

// The bytes before the data. Sorts the tensors by dtype and name and lays them out.
std::string format_safetensors(SafetensorsHeader& header);

}  // namespace horner
