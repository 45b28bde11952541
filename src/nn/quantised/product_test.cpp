// Packed weights and their products, against the values of the weights in fp64.
#include "nn/quantised/product.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/check.h"
#include "core/thrown_test.h"
#include "nn/quantised/packed.h"

namespace horner {
namespace {

at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(shape);
}

at::Tensor values(const PackedWeight& w) {  // (out,in)
  const at::Tensor y = at::empty({w.out, w.in});
  for (int64_t i = 0; i < w.out; ++i) w.row(i, y.data_ptr<float>() + i * w.in);
  return y;
}

Activations rounded(const at::Tensor& x, Target target) {
  Activations y;
  y.resize(x.size(0), x.size(1));
  for (int64_t i = 0; i < y.rows; ++i) {
    std::copy_n(x.const_data_ptr<float>() + i * y.in, y.in, y.row(i));
    round_blocks(y, i, 0, y.blocks(), target);
  }
  return y;
}

at::Tensor product(const at::Tensor& x, const PackedWeight& w, Target target) {
  const at::Tensor y = at::full({x.size(0), w.out}, 7.f);
  product(w, 0, w.groups(), rounded(x, target), y.data_ptr<float>(), w.out, false, target);
  return y;
}

// Bytes of `rows` rows of random blocks, whose halves (scales) are small.
std::vector<std::byte> random_blocks(const GgufTypeInfo& type, int64_t rows, int64_t in) {
  const at::Tensor noise = at::randint(256, {rows * in / type.weights * type.bytes}, at::kByte);
  std::vector<std::byte> bytes(size_t(noise.numel()));
  std::memcpy(bytes.data(), noise.data_ptr<uint8_t>(), bytes.size());
  const auto put_half = [&](size_t at, float value) {
    const uint16_t bits = c10::detail::fp16_ieee_from_fp32_value(value);
    std::memcpy(bytes.data() + at, &bits, 2);
  };
  const bool last = type.type == GgufType::Q6_K;
  const bool two = type.name.ends_with("_1") || type.name.ends_with("_K");
  for (size_t b = 0; b < bytes.size() / size_t(type.bytes); ++b) {
    const size_t begin = b * size_t(type.bytes);
    put_half(begin + (last ? 208 : 0), 0.01f + 0.001f * float(b % 5));
    if (two && !last) put_half(begin + 2, -0.05f * float(b % 3));
  }
  return bytes;
}

const char* const kGgufTypes[] = {
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32"};

const GgufTypeInfo& type_named(std::string_view name) {
  for (uint32_t id = 0; id < 64; ++id) {
    const GgufTypeInfo* type = find_gguf_type(id);
    if (type != nullptr && type->name == name) return *type;
  }
  throw std::runtime_error("no such type");
}

at::Tensor dequantised(const GgufTypeInfo& type, const std::vector<std::byte>& bytes, int64_t in) {
  const int64_t blocks = int64_t(bytes.size()) / type.bytes;
  const at::Tensor y = at::empty({blocks * type.weights});
  for (int64_t b = 0; b < blocks; ++b)
    type.dequantise(bytes.data() + b * type.bytes, y.data_ptr<float>() + b * type.weights);
  return y.view({-1, in});
}

TEST(PackedWeight, BlocksOfGgufKeepTheirValues) {
  for (const char* name : kGgufTypes) {
    const GgufTypeInfo& type = type_named(name);
    const int64_t out = 21, in = 512;  // 21: the last group of rows is not full
    at::manual_seed(3);
    std::vector<std::byte> bytes = random_blocks(type, out, in);
    if (type.weights == 1) {  // random bits may be no number
      for (size_t i = size_t(type.bytes) - 1; i < bytes.size(); i += size_t(type.bytes))
        bytes[i] = std::byte(0x3a);
    }
    const at::Tensor expected = dequantised(type, bytes, in);
    HugeArena arena;
    const PackedWeight w = packed(GgufMatrix{&type, bytes.data(), out, in, {}}, arena);
    const double error = ((values(w) - expected).abs().max() / expected.abs().max()).item<double>();
    const std::string_view of = name;
    if (of == "Q6_K") {
      EXPECT_LT(error, 0.5 / 127 + 1e-6) << name;  // rounded to 8 bits
    } else if (of == "Q4_K" || of == "Q5_K") {
      EXPECT_LT(error, 1.0 / 2048) << name;  // products of scales are rounded to halves
    } else {
      EXPECT_EQ(error, 0) << name;
    }
  }
}

TEST(PackedWeight, RowsOfAFileMayMove) {
  const GgufTypeInfo& type = type_named("Q4_1");
  at::manual_seed(4);
  const std::vector<std::byte> bytes = random_blocks(type, 20, 64);
  std::vector<int64_t> rows(20);
  std::iota(rows.rbegin(), rows.rend(), 0);
  HugeArena arena;
  const PackedWeight w = packed(GgufMatrix{&type, bytes.data(), 20, 64, rows}, arena);
  EXPECT_TRUE(values(w).equal(dequantised(type, bytes, 64).flip(0)));
}

TEST(PackedWeight, RoundingHasItsBound) {
  const at::Tensor weight = random({33, 80}, 5);  // 80: the last block is padded
  HugeArena arena;
  EXPECT_TRUE(values(packed(weight, "fp32", arena)).equal(weight));
  EXPECT_TRUE(values(packed(weight, "bf16", arena)).equal(weight.to(at::kBFloat16).to(at::kFloat)));
  for (const auto& [type, steps] : {std::pair{"q8", 254.0}, {"q4", 15.0}}) {
    const at::Tensor error = (values(packed(weight, type, arena)) - weight).abs();
    for (int64_t b = 0; b < 80; b += 32) {
      const int64_t n = std::min<int64_t>(32, 80 - b);
      const at::Tensor block = at::constant_pad_nd(weight.narrow(1, b, n), {0, 32 - n});
      const at::Tensor range = std::string_view(type) == "q8"
                                   ? 2 * block.abs().amax(1, true)
                                   : block.amax(1, true) - block.amin(1, true);
      // Half a step, and what rounding the scale and the minimum to halves adds.
      const at::Tensor bound = range * (0.5 / steps + 2e-3);
      EXPECT_TRUE((error.narrow(1, b, n) <= bound).all().item<bool>()) << type << " block " << b;
    }
  }
}

TEST(PackedWeight, ZerosAndConstantsStay) {
  HugeArena arena;
  for (const char* type : {"q8", "q4"}) {
    EXPECT_TRUE(values(packed(at::zeros({16, 32}), type, arena)).equal(at::zeros({16, 32})));
    const at::Tensor one = at::full({16, 32}, -2.f);
    EXPECT_LT((values(packed(one, type, arena)) - one).abs().max().item<double>(), 2e-3) << type;
  }
}

TEST(PackedWeight, WrongSizesAreRefused) {
  HugeArena arena;
  EXPECT_NE(
      thrown<UsageError>([&] { packed(at::ones({4}), "q8", arena); }).find("(out,in)"),
      std::string::npos
  );
  EXPECT_NE(
      thrown<UsageError>([&] {
        packed(at::ones({4, 4}), "q3", arena);
      }).find("got q3"),
      std::string::npos
  );
  const GgufTypeInfo& type = type_named("Q4_K");
  const std::vector<std::byte> bytes(size_t(type.bytes));
  EXPECT_NE(
      thrown<UsageError>([&] {
        packed(GgufMatrix{&type, bytes.data(), 1, 96, {}}, arena);
      }).find("blocks of 256 weights, got 96"),
      std::string::npos
  );
}

// |y - x W^T| <= sum over blocks of xd / 2 sum |w|, and fp32's own rounding; for every target and number of rows.
TEST(Product, ErrorIsThatOfTheRoundedActivations) {
  for (const char* type : {"fp32", "bf16", "q8", "q4"}) {
    HugeArena arena;
    const PackedWeight w = packed(random({50, 112}, 6), type, arena);
    const at::Tensor W = values(w).to(at::kDouble);
    for (const int64_t rows : {1, 3, 4, 12, 29}) {
      const at::Tensor x = random({rows, 112}, 7);
      const at::Tensor exact = x.to(at::kDouble).matmul(W.t());
      at::Tensor bound = 1e-6 * x.abs().to(at::kDouble).matmul(W.abs().t());
      const bool rounds = w.type == PackedType::u8 || w.type == PackedType::u4;
      for (int64_t b = 0; rounds && b < 112; b += 32) {
        const int64_t n = std::min<int64_t>(32, 112 - b);
        const at::Tensor step = x.narrow(1, b, n).abs().amax(1, true).to(at::kDouble) / 127;
        bound = bound + step / 2 * W.narrow(1, b, n).abs().sum(1).unsqueeze(0) * (1 + 1e-5);
      }
      for (const Target target : kTargets) {
        if (!has(target)) continue;
        const at::Tensor error = (product(x, w, target).to(at::kDouble) - exact).abs();
        EXPECT_TRUE((error <= bound).all().item<bool>())
            << type << " " << rows << " " << name_of(target);
      }
    }
  }
}

// The sums q.xq are whole numbers, so targets differ only in the order of fp32 sums.
TEST(Product, TargetsAgree) {
  for (const char* name : kGgufTypes) {
    const GgufTypeInfo& type = type_named(name);
    if (type.weights == 1) continue;
    at::manual_seed(8);
    const std::vector<std::byte> bytes = random_blocks(type, 40, 512);
    HugeArena arena;
    const PackedWeight w = packed(GgufMatrix{&type, bytes.data(), 40, 512, {}}, arena);
    const at::Tensor x = random({13, 512}, 9), plain = product(x, w, Target::plain);
    const at::Tensor size = x.abs().matmul(values(w).abs().t());
    for (const Target target : {Target::avx2, Target::avx512}) {
      if (!has(target)) continue;
      const at::Tensor error = (product(x, w, target) - plain).abs() / size;
      EXPECT_LT(error.max().item<double>(), 1e-6) << name << " " << name_of(target);
    }
  }
}

// All weights and activations at their ends: no sum overflows 16 bits on the way.
TEST(Product, LargestNumbersDoNotOverflow) {
  const GgufTypeInfo& type = type_named("Q8_0");
  std::vector<std::byte> bytes(size_t(16 * 2 * type.bytes));
  const uint16_t one = 0x3c00;
  for (size_t b = 0; b < 32; ++b) {
    std::memcpy(bytes.data() + b * 34, &one, 2);
    std::fill_n(bytes.data() + b * 34 + 2, 32, std::byte(b % 2 == 0 ? 0x80 : 0x7f));  // -128, 127
  }
  HugeArena arena;
  const PackedWeight w = packed(GgufMatrix{&type, bytes.data(), 16, 64, {}}, arena);
  const at::Tensor x = at::cat({at::full({1, 32}, -127.f), at::full({1, 32}, 127.f)}, 1);
  for (const Target target : kTargets) {
    if (!has(target)) continue;
    const at::Tensor y = product(x, w, target);
    EXPECT_TRUE(y.equal(at::full({1, 16}, 32 * 127 * 128.f + 32 * 127 * 127.f))) << name_of(target);
  }
}

TEST(Product, AddsAndLeavesOtherGroupsAlone) {
  HugeArena arena;
  const PackedWeight w = packed(random({40, 64}, 10), "q4", arena);
  const at::Tensor x = random({5, 64}, 11), all = product(x, w, best_target());
  const at::Tensor y = at::ones({5, 40});
  const Activations in = rounded(x, best_target());
  product(w, 1, 3, in, y.data_ptr<float>(), 40, true);
  EXPECT_TRUE(y.narrow(1, 0, 16).equal(at::ones({5, 16})));
  EXPECT_TRUE(y.narrow(1, 16, 24).allclose(all.narrow(1, 16, 24) + 1));
}

// A block with a NaN or an infinity has no scale. Rounded as if the others were alone, it would be numbers that look right.
TEST(PackedWeight, NotANumberStaysOne) {
  for (const char* type : {"q8", "q4", "bf16", "fp32"}) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (const int64_t place : {0, 40, 63}) {
        at::Tensor w = random({16, 64}, 1);
        w[3][place] = bad;
        HugeArena arena;
        const at::Tensor y = values(packed(w, type, arena));
        EXPECT_FALSE(y[3][place].isfinite().item<bool>()) << type << " " << bad << " " << place;
        EXPECT_EQ((~y.isfinite()).sum().item<int64_t>(), type[0] == 'q' ? 32 : 1);
        const at::Tensor rows = product(at::ones({1, 64}), packed(w, type, arena), best_target());
        EXPECT_FALSE(rows[0][3].isfinite().item<bool>()) << type << " " << bad << " " << place;
        EXPECT_EQ((~rows.isfinite()).sum().item<int64_t>(), 1);
        at::Tensor x = random({2, 64}, 2);
        x[1][place] = bad;
        const PackedWeight fine = packed(random({16, 64}, 3), type, arena);
        for (const Target target : kTargets) {
          if (!has(target)) continue;
          const at::Tensor good = product(x, fine, target).isfinite();
          EXPECT_TRUE(good[0].all().item<bool>() && !good[1].any().item<bool>())
              << type << " " << bad;
        }
      }
    }
  }
}

}  // namespace
}  // namespace horner
