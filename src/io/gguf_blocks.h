// Blocks of quantised weights as GGUF files hold them, and their values.
// No torch here: this part is fuzzed.
//
//   type        weights  value of a weight, q an unsigned integer of the block
//   Q4_0 Q5_0   32       d (q - 8)   d (q - 16)
//   Q4_1 Q5_1   32       d q + m
//   Q8_0        32       d q, q signed
//   Q4_K Q5_K   256      (d s) q - (dmin m), s and m of 6 bits for each 32 weights
//   Q6_K        256      (d s) (q - 32), s of 8 bits for each 16 weights
//
// Blocks of 32: the low nibble of qs[j] is weight j, the high nibble weight j + 16; bit j of qh is the fifth bit of weight j.
// Blocks of 256, Q4_K and Q5_K: 32 bytes of qs hold two groups of 32 weights, first the low nibbles, then the high ones.
// Each product and each sum is rounded to fp32 by itself, so the values have the bits of the PyPI package `gguf`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace horner {

// Numbers of 16 bits are IEEE halves.
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4], qs[16];
};
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t qh[4], qs[16];
};
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};
struct BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32], qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128], qh[64];
  int8_t scales[16];
  uint16_t d;
};

enum class GgufType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30,
};

struct GgufTypeInfo {
  GgufType type;
  std::string_view name;
  int64_t weights, bytes;  // of one block; plain types have one weight
  void (*dequantise)(const std::byte* block, float* values);  // one block
};

const GgufTypeInfo* find_gguf_type(uint32_t id);  // null when it is not on the list
std::string_view gguf_type_names();               // all, for an error

float half_to_float(uint16_t half);

// The 6-bit scale and minimum of group j = 0 .. 7 of Q4_K and Q5_K.
struct GroupScale {
  uint8_t scale, minimum;
};
GroupScale group_scale(const uint8_t (&scales)[12], int j);

}  // namespace horner
