// A weight (out,in) of a projection y = x W^T as CPUs read it fastest: 16 rows side by side, in blocks of 32 inputs.
//
//   type   value                      of a block of 16 x 32 weights                               bytes a weight
//   f32    w                          (32 inputs, 16 rows)                                        4
//   bf16   w                          the same                                                    2
//   u8     d q + m, d (q - zero)      q: (8, 16 rows, 4 inputs); d and m: halves, one per row     1.06, 1.13
//   u4     the same                   q: (4, 16 rows, 4 inputs), low nibble input j, high j + 16  0.56, 0.63
//
// m is the block's minimum, or absent: then every value is d (q - zero). Blocks of GGUF keep their bits (source -> type):
//   Q4_0 -> u4, zero 8    Q4_1 -> u4    Q5_0 -> u8, zero 16    Q5_1 -> u8    Q8_0 -> u8, zero 128
//   Q4_K -> u4, Q5_K -> u8: d and m of 32 weights are products, which are rounded to halves (relative 2^-11)
//   Q6_K -> u8, zero 128: its values are rounded as those of q8 below
// Other weights are rounded here: q8: d = max |w| / 127; q4: m = min w, d = (max w - min w) / 15, over 32 weights of a row.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>

#include "core/huge_memory.h"
#include "io/gguf_blocks.h"

namespace horner {

enum class PackedType { f32, bf16, u8, u4 };

struct PackedWeight {
  static constexpr int64_t kRows = 16, kInputs = 32;  // of a block

  PackedType type = PackedType::f32;
  int64_t out = 0, in = 0;
  int32_t zero = 0;
  std::shared_ptr<std::byte> values;         // as above
  std::shared_ptr<uint16_t> scales, minima;  // halves (groups,blocks,16); null: there are none

  int64_t groups() const { return (out + kRows - 1) / kRows; }
  int64_t blocks() const { return (in + kInputs - 1) / kInputs; }  // of a row
  int64_t value_bytes() const;
  int64_t bytes() const;                         // with scales and minima: what a product reads
  void row(int64_t index, float* values) const;  // in fp32, for embeddings and tests
};

// Blocks of a GGUF file. Row i of the weight is row rows[i] of the file, or row i if there are none.
struct GgufMatrix {
  const GgufTypeInfo* type = nullptr;
  const std::byte* blocks = nullptr;
  int64_t out = 0, in = 0;
  std::span<const int64_t> rows = {};
};

// How weights are held: "fp32", "bf16", "q8" or "q4".
PackedWeight packed(const at::Tensor& weight, std::string_view type, HugeArena& arena);  // (out,in)
// The blocks' own bits; plain types (F16, ..) become fp32.
PackedWeight packed(const GgufMatrix& weight, HugeArena& arena);

}  // namespace horner
