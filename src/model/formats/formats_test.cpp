#include "model/formats/formats.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "core/thrown_test.h"
#include "io/safetensors.h"

namespace horner {
namespace {

const std::string kGoldens = "src/model/formats/goldens/";  // by tools/model_goldens.py
constexpr const char* kDecoders[] = {
    "llama", "llama3", "linear", "mistral", "qwen2", "qwen3", "gpt2"};

// The largest difference, relative to the largest number.
double difference(const at::Tensor& got, const at::Tensor& wanted) {
  return (got - wanted).abs().max().item<double>() / wanted.abs().max().item<double>();
}

at::Tensor run(Model& model, const at::Tensor& tokens, const std::vector<int64_t>& pieces) {
  const c10::NoGradGuard no_graph;
  ModelState state;
  std::vector<at::Tensor> logits;
  int64_t t = 0;
  for (const int64_t piece : pieces) {
    logits.push_back(model.forward(tokens.narrow(1, t, piece), state)[0]);
    t += piece;
  }
  return at::cat(logits, 0);
}

TEST(Formats, LogitsAreThoseOfTransformers) {
  for (const std::string name : kDecoders) {
    const LoadedModel loaded = open_model(kGoldens + name);
    const Safetensors expected = Safetensors::open(kGoldens + name + "/expected.safetensors");
    const at::Tensor tokens = expected.get("tokens"), wanted = expected.get("values");
    const at::Tensor places = expected.get("places");
    const at::Tensor whole = run(*loaded.model, tokens, {300});
    EXPECT_LT(difference(whole.index_select(0, places), wanted), 1e-4) << name;
    const at::Tensor split = run(*loaded.model, tokens, {1, 16, 83, 200});
    EXPECT_LT(difference(split.index_select(0, places), wanted), 1e-4) << name;
    const at::Tensor steps =
        run(*loaded.model, tokens.narrow(1, 0, 64), std::vector<int64_t>(64, 1));
    EXPECT_LT(difference(steps, whole.narrow(0, 0, 64)), 1e-5) << name;
  }
}

// The whole text, in pieces with steps at the end, padded beside a shorter row, and packed behind a shorter text.
TEST(Formats, LogitsAfter8192TokensAreThoseOfTransformers) {
  const int64_t T = 8192;
  for (const std::string name : {"llama", "mistral"}) {
    const LoadedModel loaded = open_model(kGoldens + name);
    const Safetensors expected = Safetensors::open(kGoldens + name + "/long.safetensors");
    const at::Tensor tokens = expected.get("tokens").to(at::kLong), wanted = expected.get("values");
    const auto check = [&](const at::Tensor& logits, const char* how) {
      EXPECT_LT(difference(logits.index_select(0, expected.get("places")), wanted), 1e-4)
          << name << " " << how;
    };
    check(run(*loaded.model, tokens, {T}), "whole");
    std::vector<int64_t> pieces = {17, 4000, 4111};
    pieces.resize(pieces.size() + 64, 1);
    check(run(*loaded.model, tokens, pieces), "stepped");

    const c10::NoGradGuard no_graph;
    ModelState padded_state, packed_state;
    Context padded, packed;
    padded.lengths = at::tensor({17L, T});
    check(loaded.model->forward(tokens.expand({2, T}), padded_state, padded)[1], "padded");
    packed.cu_seqlens = at::tensor({0L, 17L, 17 + T});
    const at::Tensor both = at::cat({tokens.narrow(1, 0, 17), tokens}, 1);
    check(loaded.model->forward(both, packed_state, packed)[0].narrow(0, 17, T), "packed");
  }
}

TEST(Formats, GreedyTextIsThatOfTransformers) {
  for (const std::string name : kDecoders) {
    const LoadedModel loaded = open_model(kGoldens + name);
    const Safetensors expected = Safetensors::open(kGoldens + name + "/expected.safetensors");
    const at::Tensor wanted = expected.get("greedy");  // (1,17+60)
    const c10::NoGradGuard no_graph;
    ModelState state;
    at::Tensor next = wanted.narrow(1, 0, 17), text = next;
    while (text.size(1) < wanted.size(1)) {
      const at::Tensor logits = loaded.model->forward(next, state);
      next = logits.select(1, logits.size(1) - 1).argmax(-1, true);
      text = at::cat({text, next}, 1);
    }
    EXPECT_TRUE(at::equal(text, wanted)) << name;
  }
}

TEST(Formats, EncoderIsThatOfTransformers) {
  const LoadedModel loaded = open_model(kGoldens + "bert");
  const Safetensors expected = Safetensors::open(kGoldens + "bert/expected.safetensors");
  const at::Tensor tokens = expected.get("tokens"), places = expected.get("places");
  EXPECT_EQ(loaded.architecture, "bert");
  EXPECT_FALSE(loaded.model->causal());
  const at::Tensor plain = run(*loaded.model, tokens, {300}).index_select(0, places);
  EXPECT_LT(difference(plain, expected.get("values")), 1e-4);

  const c10::NoGradGuard no_graph;
  ModelState state;
  Context context;
  context.segments = expected.get("segments");
  const at::Tensor two = loaded.model->forward(tokens, state, context)[0].index_select(0, places);
  EXPECT_LT(difference(two, expected.get("with_segments")), 1e-4);

  ModelState other;
  Context padded;  // the second row has 17 tokens
  padded.lengths = at::tensor({300L, 17L});
  const at::Tensor rows = loaded.model->forward(tokens.expand({2, 300}), other, padded);
  EXPECT_LT(difference(rows[0].index_select(0, places), expected.get("values")), 1e-4);
  EXPECT_LT(difference(rows[1].narrow(0, 0, 17), expected.get("first_17")), 1e-4);
}

TEST(Formats, GgufHoldsTheSameModel) {
  for (const std::string name : {"llama", "qwen2", "qwen3", "gpt2", "bert"}) {
    const LoadedModel hf = open_model(kGoldens + name),
                      file = open_model(kGoldens + name + ".gguf");
    EXPECT_EQ(file.architecture, hf.architecture);
    EXPECT_EQ(file.context, 512);
    EXPECT_EQ(file.model->options().pattern, hf.model->options().pattern) << name;
    EXPECT_EQ(file.model->options().tied, hf.model->options().tied) << name;
    const auto parameters = file.model->named_parameters();
    ASSERT_EQ(parameters.size(), hf.model->named_parameters().size());
    for (const auto& entry : hf.model->named_parameters())
      EXPECT_TRUE(at::equal(parameters[entry.key()], entry.value())) << name << entry.key();
  }
}

TEST(Formats, BlocksOfAParameterAreItsRows) {
  OpenOptions raw;
  raw.dequantise = false;
  const LoadedModel values = open_model(kGoldens + "blocks.gguf");
  const LoadedModel blocks = open_model(kGoldens + "blocks.gguf", raw);
  const auto parameters = values.model->named_parameters();
  const auto unread = blocks.model->named_parameters();
  int64_t quantised = 0;
  for (const auto& [name, b] : blocks.blocks) {
    const at::Tensor& wanted = parameters[name];
    ASSERT_EQ(wanted.sizes(), (std::vector<int64_t>{b.rows, b.width})) << name;
    for (int64_t i = 0; i < b.rows; ++i) {
      const at::Tensor row = blocks.gguf->rows(*b.tensor, b.row(i), b.row(i) + 1)[0];
      ASSERT_TRUE(at::equal(row, wanted[i])) << name << " " << i;
    }
    const bool plain = b.tensor->type->weights == 1;
    quantised += !plain;
    EXPECT_EQ(unread[name].sizes(), wanted.sizes());
    EXPECT_EQ(at::equal(unread[name], wanted), plain) << name;
    if (!plain) EXPECT_EQ(unread[name].storage().nbytes(), 4u) << name;  // a shape only
  }
  EXPECT_EQ(quantised, 2 * 7 + 1);
  EXPECT_TRUE(at::equal(unread["norm_weight"], parameters["norm_weight"]));
}

TEST(Formats, ParametersHaveTheTypeThatIsAsked) {
  for (const std::string name : {"llama", "llama.gguf"}) {
    OpenOptions half;
    half.dtype = at::kBFloat16;
    const LoadedModel loaded = open_model(kGoldens + name, half);
    for (const at::Tensor& p : loaded.model->parameters())
      EXPECT_EQ(p.scalar_type(), at::kBFloat16);
    const Safetensors expected = Safetensors::open(kGoldens + "llama/expected.safetensors");
    const at::Tensor logits = run(*loaded.model, expected.get("tokens"), {300}).to(at::kFloat);
    const at::Tensor got = logits.index_select(0, expected.get("places"));
    EXPECT_GT(at::cosine_similarity(got, expected.get("values"), -1).min().item<double>(), 0.95);
  }
}

}  // namespace
}  // namespace horner
