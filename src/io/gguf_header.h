// The header of a GGUF file, checked in full before a byte of data is touched.
// No torch here: this part is fuzzed.
//
//   "GGUF", u32 version, u64 tensors, u64 pairs
//   pairs      string key, u32 type, value        string: u64 length, bytes       array: u32 type, u64 n, n values
//   tensors    string name, u32 ndim, u64 dims[ndim] (innermost first), u32 type, u64 offset
//   data       from the next multiple of `general.alignment` (32) on; offsets are multiples of it too
//
// Values and arrays stay where they are in the file, so a size that lies allocates nothing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/gguf_blocks.h"

namespace horner {

// A value of the metadata, or an array of them.
struct GgufValue {
  enum Kind : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };
  Kind kind;  // of the elements of an array
  bool array;
  uint64_t count;          // 1, or the elements of an array
  std::string_view bytes;  // of the file
};

struct GgufTensor {
  std::string name;
  const GgufTypeInfo* type;
  std::vector<int64_t> shape;  // as in torch: rows first; the last is a multiple of type->weights
  size_t begin, bytes;         // from the start of the file
};

struct GgufHeader {
  std::string source;  // the file's name, for errors
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> pairs;
  std::vector<GgufTensor> tensors;  // in the order of the file

  // A value of the metadata; nothing when there is no such key, DataError when it has another type.
  std::optional<std::string> text(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;  // empty when there is none
  std::vector<double> numbers(std::string_view key) const;
};

// `file` is the whole file and must outlive the header. DataError says what is wrong and where.
GgufHeader parse_gguf(std::string_view file, const std::string& source);

}  // namespace horner
