// Layers with a state of constant size in the CPU decoder: against Model::forward, and their loops against plain sums.
#include "engine/cpu/hybrid_layer.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/thrown_test.h"
#include "engine/cpu/cpu_runner.h"
#include "engine/cpu/decoder_test.h"
#include "engine/cpu/recurrence.h"

namespace horner {
namespace {

const std::string kNear = "hybrid:heads=6,groups=2,window=20,sinks=3,";

TEST(HybridLayer, InFp32ItIsModelForward) {
  for (const std::string& mixer :
       {std::string("window:heads=6,groups=3,window=70,sinks=3"),
        std::string("window:heads=2,window=300,position.base=500"),
        kNear + "far=none",
        kNear + "far=centres,count=24",
        std::string("hybrid:heads=3,window=300,sinks=0,far=centres,count=40,key=10,value=20"),
        kNear + "far=linear",
        kNear + "far=linear,feature=elu1",
        kNear + "far=linear,feature=relu",
        kNear + "far=linear,feature=relu2",
        kNear + "far=linear,feature=exp",
        kNear + "far=taylor",
        kNear + "far=taylor,order=0",
        kNear + "far=gla,rank=5",
        kNear + "far=mlstm",
        kNear + "far=gated_deltanet",
        kNear + "far=gated_deltanet,bias=true,qk_norm=true",
        kNear + "far=kda",
        kNear + "far=kda,rotate=false,qkv_bias=true,qk_norm=true,rank=3"}) {
    const auto model = small_model({mixer}, "tied=true");
    CpuDecoder decoder(*model, "fp32");
    EXPECT_LT(worst_distance(decoder, *model), 1e-5) << mixer;
  }
}

// The far part must matter in these models, or the test above says nothing about it.
TEST(HybridLayer, TheFarPartChangesTheLogits) {
  const std::vector<int32_t> tokens = random_tokens(100);
  for (const char* far : {"centres,count=24", "linear", "taylor", "gla", "mlstm", "kda"}) {
    const auto model = small_model({kNear + "far=" + far});
    const at::Tensor with = reference(*model, tokens)[99];
    const auto parameters = model->named_parameters();
    const c10::NoGradGuard no_graph;
    for (const auto& p : parameters) {
      if (p.key().ends_with("far_bias")) p.value().fill_(-100);
      if (p.key().ends_with("mass_bias")) p.value().fill_(-100);
    }
    const at::Tensor without = reference(*model, tokens)[99];
    EXPECT_GT(((with - without).norm() / with.norm()).item<double>(), 1e-2) << far;
  }
}

TEST(HybridLayer, StandsBesideSoftmaxLayers) {
  for (const char* far : {"far=centres,count=24", "far=gated_deltanet"}) {
    const auto model = small_model({"softmax:heads=6,groups=2", kNear + far});
    CpuDecoder decoder(*model, "fp32");
    EXPECT_LT(worst_distance(decoder, *model), 1e-5) << far;
    EXPECT_GT(decoder.shape().page_bytes(), 0);
    EXPECT_GT(decoder.shape().state_bytes, 0);
  }
}

// What is left is the rounding of activations and of keys and values, as for softmax layers.
TEST(HybridLayer, RoundedWeightsHaveTheirBound) {
  for (const auto& [type, bound] : {std::pair{"bf16", 4e-3}, {"q8", 0.12}, {"q4", 0.12}}) {
    for (const char* far : {"far=none", "far=gated_deltanet", "far=gla,value=5"}) {
      const auto model = small_model({kNear + far}, "tied=true");
      CpuDecoder decoder(*model, type);
      const c10::NoGradGuard no_graph;
      HugeArena arena;
      for (const auto& p : model->named_parameters()) {
        const std::string name = p.key().substr(p.key().rfind('.') + 1);
        const bool large = p.key().find("mixer") == std::string::npos || name == "q_weight" ||
                           name == "k_weight" || name == "v_weight" || name == "out_weight";
        if (p.value().dim() != 2 || !large) continue;
        const bool outer = std::string_view(type) == "q4" && p.key() == "embedding";
        const PackedWeight w = packed(p.value(), outer ? "q8" : type, arena);
        for (int64_t i = 0; i < w.out; ++i) w.row(i, p.value().data_ptr<float>() + i * w.in);
      }
      EXPECT_LT(worst_distance(decoder, *model), bound) << type << " " << far;
    }
  }
}

TEST(HybridLayer, StreamsStepTogetherAsAlone) {
  for (const char* far : {"far=centres,count=24", "far=linear", "far=mlstm", "far=kda"}) {
    const auto model = small_model({kNear + far});
    CpuDecoder decoder(*model, "fp32");
    const std::vector<int32_t> tokens = random_tokens(80);
    const at::Tensor wanted = reference(*model, tokens);
    std::vector<Pages> streams(4);
    const int64_t lengths[] = {3, 70, 22, 0};
    std::vector<CpuDecoder::Row> rows;
    std::vector<int64_t> wanted_rows;
    for (size_t i = 0; i < 4; ++i) {
      const size_t length = size_t(lengths[i]);
      if (length > 0) decoder.prefill(streams[i], std::span(tokens).first(length));
      for (size_t j = 0; j < (i == 1 ? 3 : 1); ++j)
        rows.push_back({&streams[i], tokens[length + j]});
      wanted_rows.push_back(int64_t(rows.size()) - 1);
    }
    const std::span<const float> logits = decoder.forward(rows, wanted_rows);
    for (size_t i = 0; i < 4; ++i) {
      const int64_t last = lengths[i] + (i == 1 ? 2 : 0);
      EXPECT_LT(distance(logits.subspan(i * 61, 61), wanted[last]), 1e-5) << far << i;
    }
  }
}

TEST(HybridLayer, ARowHasTheSameBitsInAnyCall) {
  const std::vector<int32_t> tokens = random_tokens(200);
  const std::span<const int32_t> all = tokens;
  for (const char* far : {"far=centres,count=24", "far=gated_deltanet"}) {
    const auto model = small_model({kNear + far});
    CpuDecoder decoder(*model, "q8");
    Pages alone, in_pieces, other;
    const auto logits = decoder.prefill(alone, all);
    const std::vector<float> wanted(logits.begin(), logits.end());
    for (size_t at = 0; at < 199; at += 7)
      decoder.prefill(in_pieces, all.subspan(at, std::min<size_t>(7, 199 - at)));
    const CpuDecoder::Row rows[] = {{&other, 5}, {&in_pieces, tokens[199]}};
    const int64_t last = 1;
    const auto among = decoder.forward(rows, {&last, 1});
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), among.begin(), among.end())) << far;
  }
}

TEST(HybridLayer, TheStateIsConstantAndCopiedOnce) {
  const auto model = small_model({kNear + "far=centres,count=24"});
  const auto runner = cpu_runner(std::make_unique<CpuDecoder>(*model, "fp32"));
  const auto stream = runner->open();
  EXPECT_EQ(runner->bytes(*stream), 0);
  runner->read(*stream, random_tokens(10));
  const int64_t bytes = runner->bytes(*stream);
  runner->read(*stream, random_tokens(600));
  EXPECT_EQ(runner->bytes(*stream), bytes);
  const auto fork = runner->fork(*stream);
  const StreamState* const pair[] = {stream.get(), fork.get()};
  EXPECT_EQ(runner->held_bytes(pair), bytes);
  runner->read(*fork, random_tokens(1));
  EXPECT_EQ(runner->held_bytes(pair), 2 * bytes);
  Pages pages;
  CpuDecoder decoder(*model, "fp32");
  decoder.step(pages, 1);
  EXPECT_EQ(
      thrown<UsageError>([&] { pages.roll_back(0); }),
      "[pages] a stream with a state cannot go back: it has forgotten tokens"
  );
}

TEST(HybridLayer, AStateGoesThroughTensors) {
  const std::vector<int32_t> tokens = random_tokens(300);
  const int32_t next[] = {7};
  for (const auto& pattern :
       {std::vector<std::string>{kNear + "far=mlstm"},
        std::vector<std::string>{"softmax:heads=6", kNear + "far=centres,count=24"}}) {
    const auto model = small_model(pattern);
    const auto runner = cpu_runner(std::make_unique<CpuDecoder>(*model, "q8"));
    const auto stream = runner->open();
    runner->read(*stream, tokens);
    const auto restored = runner->restore(runner->tensors(*stream));
    StreamState* const first[] = {stream.get()};
    StreamState* const second[] = {restored.get()};
    const at::Tensor wanted = runner->step(first, next).clone();
    EXPECT_TRUE(at::equal(runner->step(second, next), wanted)) << pattern.back();
    Runner::Tensors cut = runner->tensors(*stream);
    cut.back().second = cut.back().second.slice(0, 1);
    EXPECT_EQ(
        thrown<DataError>([&] { runner->restore(cut); }),
        "the state was not made by this model: it has another size"
    );
  }
}

TEST(HybridLayer, SaysWhatItDoesNotKnow) {
  const auto reason = [](const std::string& mixer) {
    return CpuDecoder::refuses(*small_model({mixer}));
  };
  const std::string begin = "the CPU decoder does not know ";
  EXPECT_EQ(reason("hybrid:far=kda"), "");
  EXPECT_EQ(reason("window:causal=false"), begin + "causal = false");
  EXPECT_EQ(reason("hybrid:far=linear,feature=luna"), begin + "hybrid with feature = luna");
  EXPECT_EQ(reason("hybrid:far=centres,order=2"), begin + "hybrid with far = centres of order 2");
}

TEST(Recurrence, LoopsAreTheirFormulas) {
  const int64_t F = 37, V = 48, queries = 7, stride = 48, K = 20;
  const at::Tensor S = at::randn({F, V}), p = at::randn({queries, stride});
  const at::Tensor a = at::rand({F}), u = at::randn({F}), v = at::randn({V});
  const at::Tensor after = a.unsqueeze(1) * S + u.unsqueeze(1) * v;
  const at::Tensor q = at::randn({queries, K}), w = at::randn({80, K}),
                   z = at::randint(2, {80}, at::kFloat);
  const at::Tensor groups = w.view({5, 16, K}).transpose(1, 2).contiguous();
  const auto data = [](const at::Tensor& x) { return x.data_ptr<float>(); };
  for (const Target target : kTargets) {
    if (!has(target)) continue;
    const at::Tensor own = S.clone(), o = at::empty({queries, V}), x = at::empty({queries, 80});
    sweep({data(own), F, V, data(p), queries, stride, data(o), data(a), data(u), data(v)}, target);
    EXPECT_TRUE(at::allclose(own, after, 1e-5, 1e-6)) << name_of(target);
    EXPECT_TRUE(at::allclose(o, p.narrow(1, 0, F).matmul(after), 1e-4, 1e-4)) << name_of(target);
    sweep({data(own), F, V, data(p), 1, stride, data(o)}, target);
    EXPECT_TRUE(at::allclose(own, after, 1e-5, 1e-6)) << name_of(target);
    group_dots({data(q), queries, data(groups), K, 80, data(x), 80}, target);
    EXPECT_TRUE(at::allclose(x, q.matmul(w.t()), 1e-4, 1e-5)) << name_of(target);
    const at::Tensor row = x[3].clone(), masked = x[3].masked_fill(z == 0, -INFINITY);
    EXPECT_EQ(nearest_centre(data(row), data(z), 80, target), (x[3] - z).argmax().item<int64_t>());
    const at::Tensor weights = x[3].clone();
    const Weighed weighed = weigh_centres(data(weights), data(z), 80, target);
    EXPECT_TRUE(at::allclose(weights, (masked - masked.max()).exp(), 1e-5, 1e-7));
    EXPECT_EQ(weighed.m, masked.max().item<float>());
    EXPECT_NEAR(weighed.l, weights.sum().item<float>(), 1e-4);
    const at::Tensor y = at::empty({32});
    softmax_row(data(q), -2, K, data(y), target);
    EXPECT_TRUE(at::allclose(y.narrow(0, 0, K), (q[0] * -2).softmax(0), 1e-5, 1e-7));
    sigmoid_row(data(v), 48, data(o), target);
    EXPECT_TRUE(at::allclose(o[0], v.sigmoid(), 1e-5, 1e-7)) << name_of(target);
    EXPECT_NEAR(dot_row(data(v), data(p), 48, target), v.dot(p[0]).item<float>(), 1e-4);
  }
}

}  // namespace
}  // namespace horner
