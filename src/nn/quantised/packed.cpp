#include "nn/quantised/packed.h"

#include <ATen/Functions.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/threads.h"

namespace horner {
namespace {

constexpr int64_t kRows = PackedWeight::kRows, kInputs = PackedWeight::kInputs;

uint16_t half(float x) { return c10::detail::fp16_ieee_from_fp32_value(x); }

// 32 weights of a row: value d q + m, or d (q - zero).
struct Group {
  uint8_t q[kInputs];
  float d, m;
};

// How blocks of a type are packed.
struct Layout {
  PackedType type;
  int32_t zero;
  bool minima;
};

Layout layout_of(GgufType type) {
  switch (type) {
    case GgufType::Q4_0: return {PackedType::u4, 8, false};
    case GgufType::Q4_1:
    case GgufType::Q4_K: return {PackedType::u4, 0, true};
    case GgufType::Q5_0: return {PackedType::u8, 16, false};
    case GgufType::Q5_1:
    case GgufType::Q5_K: return {PackedType::u8, 0, true};
    case GgufType::Q8_0:
    case GgufType::Q6_K: return {PackedType::u8, 128, false};
    default: return {PackedType::f32, 0, false};
  }
}

// 0, or NaN if one of the weights is NaN or infinite: then the whole block is NaN, and not a number that looks like one.
float poison(const float* w) {
  float sum = 0;
  for (int j = 0; j < kInputs; ++j) sum += 0 * w[j];
  return sum;
}

void round_to_8_bits(const float* w, Group& group) {
  float most = 0;
  for (int j = 0; j < kInputs; ++j) most = std::max(most, std::abs(w[j]));
  group.d = half_to_float(half(most / 127 + poison(w)));
  const float by = group.d > 0 ? 1 / group.d : 0;
  for (int j = 0; j < kInputs; ++j)
    group.q[j] = uint8_t(128 + std::clamp(std::lrint(w[j] * by), -127L, 127L));
}

void round_to_4_bits(const float* w, Group& group) {
  const auto [least, most] = std::minmax_element(w, w + kInputs);
  group.m = half_to_float(half(*least));
  group.d = half_to_float(half((*most - group.m) / 15 + poison(w)));
  const float by = group.d > 0 ? 1 / group.d : 0;
  for (int j = 0; j < kInputs; ++j)
    group.q[j] = uint8_t(std::clamp(std::lrint((w[j] - group.m) * by), 0L, 15L));
}

template <class Block>
Block read(const std::byte* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  return block;
}

void split_nibbles(const uint8_t (&qs)[16], Group& group) {
  for (int j = 0; j < 16; ++j) group.q[j] = qs[j] & 15, group.q[j + 16] = qs[j] >> 4;
}
void add_fifth_bits(const uint8_t (&qh)[4], Group& group) {
  for (int j = 0; j < kInputs; ++j) group.q[j] |= uint8_t((qh[j / 8] >> (j % 8) & 1) << 4);
}

// Group `index` of 32 weights of a row of blocks.
void read_group(const GgufTypeInfo& type, const std::byte* row, int64_t index, Group& group) {
  const int64_t per_block = type.weights / kInputs;
  const std::byte* bytes = row + index / per_block * type.bytes;
  const int j = int(index % per_block);
  switch (type.type) {
    case GgufType::Q4_0: {
      const auto b = read<BlockQ4_0>(bytes);
      group.d = half_to_float(b.d);
      return split_nibbles(b.qs, group);
    }
    case GgufType::Q4_1: {
      const auto b = read<BlockQ4_1>(bytes);
      group.d = half_to_float(b.d), group.m = half_to_float(b.m);
      return split_nibbles(b.qs, group);
    }
    case GgufType::Q5_0: {
      const auto b = read<BlockQ5_0>(bytes);
      group.d = half_to_float(b.d);
      split_nibbles(b.qs, group);
      return add_fifth_bits(b.qh, group);
    }
    case GgufType::Q5_1: {
      const auto b = read<BlockQ5_1>(bytes);
      group.d = half_to_float(b.d), group.m = half_to_float(b.m);
      split_nibbles(b.qs, group);
      return add_fifth_bits(b.qh, group);
    }
    case GgufType::Q8_0: {
      const auto b = read<BlockQ8_0>(bytes);
      group.d = half_to_float(b.d);
      for (int i = 0; i < kInputs; ++i) group.q[i] = uint8_t(b.qs[i] + 128);
      return;
    }
    case GgufType::Q4_K: {
      const auto b = read<BlockQ4_K>(bytes);
      const auto [scale, minimum] = group_scale(b.scales, j);
      group.d = half_to_float(b.d) * scale, group.m = -half_to_float(b.dmin) * minimum;
      for (int i = 0; i < kInputs; ++i) group.q[i] = b.qs[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
      return;
    }
    case GgufType::Q5_K: {
      const auto b = read<BlockQ5_K>(bytes);
      const auto [scale, minimum] = group_scale(b.scales, j);
      group.d = half_to_float(b.d) * scale, group.m = -half_to_float(b.dmin) * minimum;
      for (int i = 0; i < kInputs; ++i) {
        const int low = b.qs[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
        group.q[i] = uint8_t(low | (b.qh[i] >> j & 1) << 4);
      }
      return;
    }
    default: {
      float values[256];  // the most weights of a block
      type.dequantise(bytes, values);
      return round_to_8_bits(values + j * kInputs, group);
    }
  }
}

std::shared_ptr<uint16_t> halves(HugeArena& arena, int64_t n) {
  const std::shared_ptr<std::byte> bytes = arena.take(size_t(n) * 2);
  return {bytes, reinterpret_cast<uint16_t*>(bytes.get())};
}

PackedWeight empty_weight(const Layout& layout, int64_t out, int64_t in, HugeArena& arena) {
  PackedWeight w;
  w.type = layout.type, w.zero = layout.zero, w.out = out, w.in = in;
  w.values = arena.take(size_t(w.value_bytes()));
  const int64_t rows = w.groups() * w.blocks() * kRows;
  if (w.type == PackedType::f32 || w.type == PackedType::bf16) return w;
  w.scales = halves(arena, rows);
  if (layout.minima) w.minima = halves(arena, rows);
  return w;
}

void put(PackedWeight& w, int64_t row, int64_t block, const Group& group) {
  const int64_t at = row / kRows * w.blocks() + block, lane = row % kRows;
  std::byte* values = w.values.get();
  if (w.type == PackedType::u8) {
    for (int64_t k = 0; k < 8; ++k)
      std::memcpy(values + ((at * 8 + k) * kRows + lane) * 4, group.q + 4 * k, 4);
  } else {
    uint8_t pairs[16];
    for (int j = 0; j < 16; ++j) pairs[j] = uint8_t(group.q[j] | group.q[j + 16] << 4);
    for (int64_t k = 0; k < 4; ++k)
      std::memcpy(values + ((at * 4 + k) * kRows + lane) * 4, pairs + 4 * k, 4);
  }
  w.scales.get()[at * kRows + lane] = half(group.d);
  if (w.minima) w.minima.get()[at * kRows + lane] = half(group.m);
}

// Calls f(row) for all rows, on all threads.
template <class F>
void each_row(int64_t out, const F& f) {
  const int64_t groups = (out + kRows - 1) / kRows;
  on_threads(groups, [&](const Team& team) {
    const int64_t end = std::min(out, team.end(groups) * kRows);
    for (int64_t row = team.begin(groups) * kRows; row < end; ++row) f(row);
  });
}

void put_plain(PackedWeight& w, int64_t row, const float* from) {
  std::byte* values = w.values.get();
  for (int64_t i = 0; i < w.in; ++i) {
    const int64_t at = (row / kRows * w.blocks() * kInputs + i) * kRows + row % kRows;
    const c10::BFloat16 rounded = from[i];
    if (w.type == PackedType::f32) std::memcpy(values + at * 4, from + i, 4);
    if (w.type == PackedType::bf16) std::memcpy(values + at * 2, &rounded.x, 2);
  }
}

}  // namespace

int64_t PackedWeight::value_bytes() const {
  const int64_t weights = groups() * blocks() * kRows * kInputs;
  switch (type) {
    case PackedType::f32: return weights * 4;
    case PackedType::bf16: return weights * 2;
    case PackedType::u8: return weights;
    case PackedType::u4: return weights / 2;
  }
  return 0;
}

int64_t PackedWeight::bytes() const {
  const int64_t halves = groups() * blocks() * kRows * 2;
  return value_bytes() + (scales ? halves : 0) + (minima ? halves : 0);
}

void PackedWeight::row(int64_t index, float* to) const {
  const std::byte* bytes = values.get();
  const int64_t group = index / kRows * blocks(), lane = index % kRows;
  for (int64_t i = 0; i < in; ++i) {
    const int64_t block = i / kInputs, j = i % kInputs,
                  plain = (group * kInputs + i) * kRows + lane;
    if (type == PackedType::f32) {
      std::memcpy(to + i, bytes + plain * 4, 4);
    } else if (type == PackedType::bf16) {
      uint16_t bits;
      std::memcpy(&bits, bytes + plain * 2, 2);
      to[i] = c10::detail::f32_from_bits(bits);
    } else {
      const bool wide = type == PackedType::u8;
      const int64_t byte = wide ? j : j % 16, words = wide ? 8 : 4;
      const int64_t at = (((group + block) * words + byte / 4) * kRows + lane) * 4 + byte % 4;
      auto q = uint8_t(bytes[at]);
      if (!wide) q = j < 16 ? q & 15 : q >> 4;
      const int64_t row = (group + block) * kRows + lane;
      const float d = half_to_float(scales.get()[row]);
      to[i] = minima ? d * float(q) + half_to_float(minima.get()[row]) : d * float(q - zero);
    }
  }
}

PackedWeight packed(const at::Tensor& weight, std::string_view type, HugeArena& arena) {
  HORNER_CHECK(
      weight.dim() == 2 && weight.is_floating_point(),
      "[weights] a packed weight must be (out,in) numbers, got {} dimensions",
      weight.dim()
  );
  Layout layout = {PackedType::f32, 0, false};
  if (type == "bf16") {
    layout.type = PackedType::bf16;
  } else if (type == "q8") {
    layout = layout_of(GgufType::Q8_0);
  } else if (type == "q4") {
    layout = layout_of(GgufType::Q4_1);
  } else {
    HORNER_CHECK(type == "fp32", "[weights] must be fp32, bf16, q8 or q4, got {}", type);
  }
  const at::Tensor w = weight.detach().to(at::kCPU, at::kFloat).contiguous();
  PackedWeight y = empty_weight(layout, w.size(0), w.size(1), arena);
  const float* from = w.const_data_ptr<float>();
  each_row(y.out, [&](int64_t row) {
    const float* own = from + row * y.in;
    if (!y.scales) return put_plain(y, row, own);
    for (int64_t b = 0; b < y.blocks(); ++b) {
      float padded[kInputs] = {};
      std::copy_n(own + b * kInputs, std::min(kInputs, y.in - b * kInputs), padded);
      Group group = {};
      y.type == PackedType::u8 ? round_to_8_bits(padded, group) : round_to_4_bits(padded, group);
      put(y, row, b, group);
    }
  });
  return y;
}

PackedWeight packed(const GgufMatrix& w, HugeArena& arena) {
  HORNER_CHECK(
      w.in % w.type->weights == 0,
      "[weights] a row of {} has blocks of {} weights, got {}",
      w.type->name,
      w.type->weights,
      w.in
  );
  PackedWeight y = empty_weight(layout_of(w.type->type), w.out, w.in, arena);
  const int64_t stride = w.in / w.type->weights * w.type->bytes;
  each_row(y.out, [&](int64_t row) {
    const std::byte* own = w.blocks + (w.rows.empty() ? row : w.rows[size_t(row)]) * stride;
    if (!y.scales) {
      std::vector<float> values(static_cast<size_t>(w.in));
      for (int64_t i = 0; i < w.in; ++i)
        w.type->dequantise(own + i * w.type->bytes, &values[size_t(i)]);
      return put_plain(y, row, values.data());
    }
    for (int64_t b = 0; b < y.blocks(); ++b) {
      Group group = {};
      read_group(*w.type, own, b, group);
      put(y, row, b, group);
    }
  });
  return y;
}

}  // namespace horner
