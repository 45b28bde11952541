// The CPU decoder against Model::forward, and its kernels against fp64.
#include "engine/cpu/decoder.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"
#include "core/thrown_test.h"
#include "engine/cpu/decoder_test.h"
#include "engine/cpu/kernels.h"

namespace horner {
namespace {

TEST(CpuDecoder, InFp32ItIsModelForward) {
  for (const char* mixer :
       {"softmax:heads=6,groups=2",
        "softmax:heads=3,key=10,bias=true,qk_norm=true",
        "softmax:heads=4,position.kind=none"}) {
    for (const char* more : {"tied=true", "logit_cap=5"}) {
      const auto model = small_model({mixer}, more);
      CpuDecoder decoder(*model, "fp32");
      EXPECT_LT(worst_distance(decoder, *model), 1e-5) << mixer << " " << more;
    }
  }
}

// With rounded weights, against Model::forward with the values of these weights: what is left is the rounding of activations
// (1/254 of the largest of 32) and of keys and values.
TEST(CpuDecoder, RoundedWeightsHaveTheirBound) {
  for (const auto& [type, bound] : {std::pair{"bf16", 2e-3}, {"q8", 8e-2}, {"q4", 8e-2}}) {
    const auto model = small_model({"softmax:heads=6,groups=2"}, "tied=true");
    CpuDecoder decoder(*model, type);
    const c10::NoGradGuard no_graph;
    HugeArena arena;
    for (const auto& p : model->named_parameters()) {
      if (p.value().dim() != 2) continue;
      const bool outer = std::string_view(type) == "q4" && p.key() == "embedding";
      const PackedWeight w = packed(p.value(), outer ? "q8" : type, arena);
      for (int64_t i = 0; i < w.out; ++i) w.row(i, p.value().data_ptr<float>() + i * w.in);
    }
    EXPECT_LT(worst_distance(decoder, *model), bound) << type;
  }
}

TEST(CpuDecoder, StreamsStepTogetherAsAlone) {
  const auto model = small_model({"softmax:heads=6,groups=2"});
  CpuDecoder decoder(*model, "fp32");
  const std::vector<int32_t> tokens = random_tokens(300);
  const std::span<const int32_t> all = tokens;
  const at::Tensor wanted = reference(*model, tokens);
  std::vector<Pages> streams(4);
  const int64_t lengths[] = {3, 257, 40, 0};
  std::vector<CpuDecoder::Row> rows;
  std::vector<int64_t> wanted_rows;
  for (size_t i = 0; i < 4; ++i) {
    if (lengths[i] > 0) decoder.prefill(streams[i], all.first(size_t(lengths[i])));
    rows.push_back({&streams[i], tokens[size_t(lengths[i])]});
    wanted_rows.push_back(int64_t(i));
  }
  const std::span<const float> logits = decoder.forward(rows, wanted_rows);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_LT(distance(logits.subspan(i * 61, 61), wanted[lengths[i]]), 1e-5) << i;
    EXPECT_EQ(streams[i].length(), lengths[i] + 1);
  }
}

TEST(CpuDecoder, ARowHasTheSameBitsInAnyCall) {
  const auto model = small_model({"softmax:heads=6,groups=2"});
  const std::vector<int32_t> tokens = random_tokens(1100);
  const std::span<const int32_t> all = tokens;
  for (const char* weights : {"fp32", "bf16", "q8", "q4"}) {
    CpuDecoder decoder(*model, weights);
    Pages alone;
    decoder.prefill(alone, all.first(1099));
    const std::span<const float> logits = decoder.step(alone, tokens[1099]);
    const std::vector<float> wanted(logits.begin(), logits.end());
    for (const size_t piece : {7, 300}) {  // the prompt in other pieces, then beside 64 others
      std::vector<Pages> streams(65);
      for (size_t at = 0; at < 1099; at += piece)
        decoder.prefill(streams[0], all.subspan(at, std::min(piece, 1099 - at)));
      std::vector<CpuDecoder::Row> rows;
      std::vector<int64_t> wanted_rows;
      for (size_t i = 0; i < streams.size(); ++i) {
        if (i > 0) decoder.prefill(streams[i], all.first(1 + i % 8));
        rows.push_back({&streams[i], i == 0 ? tokens[1099] : tokens[i]});
        wanted_rows.push_back(int64_t(i));
      }
      const std::span<const float> among = decoder.forward(rows, wanted_rows);
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), among.begin())) << weights << piece;
    }
  }
}

// The first fork that goes on writes behind what the others read; the second one copies.
TEST(CpuDecoder, ForksSharePages) {
  const auto model = small_model({"softmax:heads=6,groups=2"});
  CpuDecoder decoder(*model, "fp32");
  const std::vector<int32_t> tokens = random_tokens(300);
  Pages first;
  decoder.prefill(first, tokens);
  Pages second = first, third = first;
  const auto logits_of = [&](Pages& stream, int32_t token) {
    const std::span<const float> logits = decoder.step(stream, token);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto wanted = [&](std::vector<int32_t> more) {
    more.insert(more.begin(), tokens.begin(), tokens.end());
    return reference(*model, more)[int64_t(more.size()) - 1];
  };
  EXPECT_LT(distance(logits_of(second, 1), wanted({1})), 1e-5);
  EXPECT_EQ(second.page(1), first.page(1));  // tokens 256 .. 300, and then its own
  EXPECT_LT(distance(logits_of(first, 2), wanted({2})), 1e-5);
  EXPECT_EQ(second.page(0), first.page(0));
  EXPECT_NE(second.page(1), first.page(1));
  EXPECT_LT(distance(logits_of(second, 3), wanted({1, 3})), 1e-5);
  third.roll_back(290);  // others read its last tokens
  EXPECT_LT(distance(logits_of(third, tokens[290]), reference(*model, tokens)[290]), 1e-5);
  EXPECT_NE(third.page(1), second.page(1));
  EXPECT_LT(distance(logits_of(second, 4), wanted({1, 3, 4})), 1e-5);
}

TEST(CpuDecoder, PagesRollBack) {
  const auto model = small_model({"softmax:heads=6,groups=2"});
  CpuDecoder decoder(*model, "fp32");
  const std::vector<int32_t> tokens = random_tokens(300);
  Pages stream;
  decoder.prefill(stream, random_tokens(280));
  stream.roll_back(200);
  const auto logits = decoder.prefill(stream, std::span(tokens).subspan(200));
  EXPECT_LT(distance(logits, reference(*model, tokens)[299]), 1e-5);
}

TEST(CpuDecoder, SaysWhatItDoesNotKnow) {
  const auto reason = [](const std::string& mixer, const std::string& more = "") {
    const auto model = small_model({mixer}, more);
    return CpuDecoder::refuses(*model);
  };
  EXPECT_EQ(reason("softmax"), "");
  EXPECT_EQ(reason("gla"), "the CPU decoder does not know mixer gla");
  EXPECT_EQ(reason("softmax:norm=rms"), "the CPU decoder does not know norm = \"rms\"");
  EXPECT_EQ(reason("softmax", "mlp=gelu"), "the CPU decoder does not know mlp = \"gelu\"");
  const auto model = small_model({"softmax"});
  CpuDecoder decoder(*model);
  Pages stream;
  EXPECT_EQ(
      thrown<UsageError>([&] { decoder.step(stream, 61); }), "[decoder] token 61 is not among 61"
  );
  EXPECT_EQ(stream.length(), 0);
}

TEST(CpuDecoder, CountsItsBytes) {
  const auto model = small_model({"softmax:heads=6,groups=2"}, "tied=true");
  CpuDecoder decoder(*model, "q8");
  // 48 inputs are 2 blocks of 32, 72 are 3; rows in groups of 16; 34 bytes for 32 weights.
  const int64_t layer = (48 + 16 + 16 + 48 + 80 + 80) * 2 + 48 * 3;
  EXPECT_EQ(decoder.weight_bytes(), (2 * layer + 64 * 2) * 34);
  EXPECT_EQ(decoder.cache_bytes(10), 2 * 10 * 2 * 16 * 2);  // layers, tokens, G, K + V, halves
}

// o of each query against softmax in fp64 on the rounded keys and values.
TEST(CpuKernels, AttendIsSoftmax) {
  CacheShape shape;
  shape.add(1, 20, 24);
  const int64_t V = shape.layers[0].V;  // 32
  Pages pages;
  pages.reserve(shape, 700);
  const auto k = at::randn({700, 20}).to(at::kHalf), v = at::randn({700, 24}).to(at::kHalf);
  for (int64_t s = 0; s < 700; ++s) {
    auto* page = reinterpret_cast<uint16_t*>(pages.page(s / kPage));
    const int64_t slot = s % kPage;
    for (int64_t d = 0; d < 20; ++d)
      page[slot / 16 * 16 * 20 + d * 16 + slot % 16] = k.data_ptr<at::Half>()[s * 20 + d].x;
    for (int64_t d = 0; d < 24; ++d)
      page[shape.layers[0].values(0) + slot * V + d] = v.data_ptr<at::Half>()[s * 24 + d].x;
  }
  for (const int64_t queries : {1, 3, 7, 15}) {
    const at::Tensor q = at::randn({queries, 20});
    std::vector<int64_t> begins, ends;
    for (int64_t i = 0; i < queries; ++i) ends.push_back(1 + i * 49), begins.push_back(i * 20);
    for (const Target target : kTargets) {
      if (!has(target)) continue;
      std::vector<float> m(size_t{16}), l(m), o(size_t(16) * 32);
      Attend task;
      task.K = 20, task.V = V, task.q = q.data_ptr<float>();
      task.begins = begins, task.ends = ends, task.sinks = 5, task.pages = pages.pages();
      task.keys = 0, task.values = shape.layers[0].values(0);
      task.begin = 0, task.end = 700;
      task.m = m.data(), task.l = l.data(), task.o = o.data();
      attend(task, target);
      for (int64_t i = 0; i < queries; ++i) {
        const at::Tensor s = at::arange(700);
        const at::Tensor visible =
            (s < ends[size_t(i)]).logical_and((s >= begins[size_t(i)]).logical_or(s < 5));
        const at::Tensor x = k.to(at::kDouble).matmul(q[i].to(at::kDouble));
        const at::Tensor weights = x.masked_fill(visible.logical_not(), -INFINITY).softmax(0);
        const at::Tensor wanted = weights.matmul(v.to(at::kDouble));
        for (int64_t c = 0; c < 24; ++c)
          EXPECT_NEAR(o[size_t(i * V + c)] / l[size_t(i)], wanted[c].item<double>(), 3e-6)
              << queries << " " << name_of(target);
      }
    }
  }
}

TEST(CpuKernels, NormsAndGatesAreTheirFormulas) {
  const at::Tensor x = at::randn({45}) * 3, up = at::randn({45}), weight = at::rand({45});
  const at::Tensor wide = x.to(at::kDouble);
  for (const Target target : kTargets) {
    if (!has(target)) continue;
    const at::Tensor y = at::empty({45});
    rms_norm_row(
        x.data_ptr<float>(), weight.data_ptr<float>(), 1e-5, 45, y.data_ptr<float>(), target
    );
    const at::Tensor norm = wide * (wide.square().mean() + 1e-5).rsqrt() * weight.to(at::kDouble);
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), norm, 1e-6, 1e-7)) << name_of(target);
    swiglu_row(x.data_ptr<float>(), up.data_ptr<float>(), 45, y.data_ptr<float>(), target);
    const at::Tensor gated = wide * wide.sigmoid() * up.to(at::kDouble);
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), gated, 2e-6, 1e-7)) << name_of(target);
  }
}

TEST(CpuKernels, HalvesAreTorchsAndBounded) {
  const at::Tensor x = at::cat({at::randn({30}), at::tensor({1e6f, -1e6f})});
  const at::Tensor wanted = x.clamp(-65504, 65504).to(at::kHalf);
  for (const Target target : kTargets) {
    if (!has(target)) continue;
    uint16_t y[32];
    to_halves(x.data_ptr<float>(), 32, y, target);
    for (int i = 0; i < 32; ++i)
      EXPECT_EQ(y[i], wanted.data_ptr<at::Half>()[i].x) << i << " " << name_of(target);
  }
}

}  // namespace
}  // namespace horner
