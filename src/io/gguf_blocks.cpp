#include "io/gguf_blocks.h"

#include <bit>
#include <cstring>

namespace horner {
namespace {

// Blocks may lie at any address.
template <class Block>
Block read(const std::byte* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  return block;
}

void f32(const std::byte* block, float* y) { *y = read<float>(block); }
void f16(const std::byte* block, float* y) { *y = half_to_float(read<uint16_t>(block)); }
void bf16(const std::byte* block, float* y) {
  *y = std::bit_cast<float>(uint32_t{read<uint16_t>(block)} << 16);
}

void q4_0(const std::byte* block, float* y) {
  const auto b = read<BlockQ4_0>(block);
  const float d = half_to_float(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * float((b.qs[j] & 15) - 8);
    y[j + 16] = d * float((b.qs[j] >> 4) - 8);
  }
}

void q4_1(const std::byte* block, float* y) {
  const auto b = read<BlockQ4_1>(block);
  const float d = half_to_float(b.d), m = half_to_float(b.m);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * float(b.qs[j] & 15) + m;
    y[j + 16] = d * float(b.qs[j] >> 4) + m;
  }
}

// The fifth bits of weights j and j + 16, in their place.
int fifth(const uint8_t (&qh)[4], int j) { return (qh[j / 8] >> (j % 8) & 1) << 4; }

void q5_0(const std::byte* block, float* y) {
  const auto b = read<BlockQ5_0>(block);
  const float d = half_to_float(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * float(((b.qs[j] & 15) | fifth(b.qh, j)) - 16);
    y[j + 16] = d * float(((b.qs[j] >> 4) | fifth(b.qh, j + 16)) - 16);
  }
}

void q5_1(const std::byte* block, float* y) {
  const auto b = read<BlockQ5_1>(block);
  const float d = half_to_float(b.d), m = half_to_float(b.m);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * float((b.qs[j] & 15) | fifth(b.qh, j)) + m;
    y[j + 16] = d * float((b.qs[j] >> 4) | fifth(b.qh, j + 16)) + m;
  }
}

void q8_0(const std::byte* block, float* y) {
  const auto b = read<BlockQ8_0>(block);
  const float d = half_to_float(b.d);
  for (int j = 0; j < 32; ++j) y[j] = d * float(b.qs[j]);
}

// Q4_K, and Q5_K with its fifth bits: bit j of qh[l] belongs to weight l of group j.
template <class Block>
void q45_k(const std::byte* block, float* y) {
  const auto b = read<Block>(block);
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, minimum] = group_scale(b.scales, j);
    const float ds = d * float(scale), dm = dmin * float(minimum);
    for (int l = 0; l < 32; ++l) {
      int q = b.qs[j / 2 * 32 + l] >> (j % 2 * 4) & 15;
      if constexpr (sizeof(Block) == sizeof(BlockQ5_K)) q |= (b.qh[l] >> j & 1) << 4;
      y[j * 32 + l] = ds * float(q) - dm;
    }
  }
}

// Each 128 weights have 64 bytes of ql and 32 of qh; part p of 32 weights has bits 2p, 2p + 1 of qh above its nibbles.
void q6_k(const std::byte* block, float* y) {
  const auto b = read<BlockQ6_K>(block);
  const float d = half_to_float(b.d);
  for (int half = 0; half < 2; ++half) {
    for (int part = 0; part < 4; ++part) {
      for (int l = 0; l < 32; ++l) {
        const int low = b.ql[half * 64 + part % 2 * 32 + l] >> (part / 2 * 4) & 15;
        const int high = b.qh[half * 32 + l] >> (part * 2) & 3;
        const float ds = d * float(b.scales[half * 8 + part * 2 + l / 16]);
        y[half * 128 + part * 32 + l] = ds * float((low | high << 4) - 32);
      }
    }
  }
}

template <class Block>
constexpr GgufTypeInfo row(
    GgufType type, std::string_view name, int64_t weights, void (*values)(const std::byte*, float*)
) {
  return {type, name, weights, int64_t{sizeof(Block)}, values};
}

constexpr GgufTypeInfo kTypes[] = {
    row<float>(GgufType::F32, "F32", 1, f32),
    row<uint16_t>(GgufType::F16, "F16", 1, f16),
    row<uint16_t>(GgufType::BF16, "BF16", 1, bf16),
    row<BlockQ4_0>(GgufType::Q4_0, "Q4_0", 32, q4_0),
    row<BlockQ4_1>(GgufType::Q4_1, "Q4_1", 32, q4_1),
    row<BlockQ5_0>(GgufType::Q5_0, "Q5_0", 32, q5_0),
    row<BlockQ5_1>(GgufType::Q5_1, "Q5_1", 32, q5_1),
    row<BlockQ8_0>(GgufType::Q8_0, "Q8_0", 32, q8_0),
    row<BlockQ4_K>(GgufType::Q4_K, "Q4_K", 256, q45_k<BlockQ4_K>),
    row<BlockQ5_K>(GgufType::Q5_K, "Q5_K", 256, q45_k<BlockQ5_K>),
    row<BlockQ6_K>(GgufType::Q6_K, "Q6_K", 256, q6_k),
};
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

}  // namespace

const GgufTypeInfo* find_gguf_type(uint32_t id) {
  for (const GgufTypeInfo& info : kTypes) {
    if (uint32_t(info.type) == id) return &info;
  }
  return nullptr;
}

std::string_view gguf_type_names() {
  return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K";
}

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31, fraction = half & 0x3ffU;
  const uint32_t exponent = half >> 10 & 31U;
  if (exponent == 0) {  // zero or subnormal: fraction 2^-24
    const float size = float(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(size) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

GroupScale group_scale(const uint8_t (&s)[12], int j) {
  if (j < 4) return {uint8_t(s[j] & 63), uint8_t(s[j + 4] & 63)};
  return {uint8_t((s[j + 4] & 15) | s[j - 4] >> 6 << 4), uint8_t(s[j + 4] >> 4 | s[j] >> 6 << 4)};
}

}  // namespace horner
