// Models that `horner get` downloads, against transformers: ./test --label models
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "io/safetensors.h"
#include "model/formats/formats.h"
#include "model/formats/known.h"
#include "model/sentence.h"

namespace horner {
namespace {

const std::string kGoldens = "src/model/formats/goldens/real/";  // by tools/model_goldens.py

bool is_here(const char* name) {
  return std::filesystem::exists(known_model_path(*find_known_model(name)));
}

std::string text_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), size_t(bytes.numel())};
}

std::vector<int32_t> ids_of(const at::Tensor& tokens) {
  const at::Tensor plain = tokens.flatten().to(at::kInt).contiguous();
  return {plain.const_data_ptr<int32_t>(), plain.const_data_ptr<int32_t>() + plain.numel()};
}

TEST(RealModels, Smollm2HasTheLogitsOfTransformers) {
  if (!is_here("smollm2-135m")) GTEST_SKIP() << "run first: horner get smollm2-135m";
  const LoadedModel loaded = open_model("smollm2-135m");
  const Safetensors golden = Safetensors::open(kGoldens + "smollm2-135m.safetensors");
  EXPECT_EQ(loaded.context, 8192);
  EXPECT_EQ(loaded.ends, (std::vector<int32_t>{2}));
  EXPECT_NE(loaded.chat_template.find("im_start"), std::string::npos);
  const at::Tensor tokens = golden.get("tokens");  // (1,1500)
  const std::string text = text_of(golden.get("text"));
  EXPECT_EQ(loaded.need_tokenizer().encode(text), ids_of(golden.get("ids")));
  EXPECT_EQ(loaded.need_tokenizer().decode(ids_of(golden.get("ids"))), text);

  const c10::NoGradGuard no_graph;
  ModelState state, pieces;
  const at::Tensor whole = loaded.model->forward(tokens, state)[0];
  const at::Tensor split = at::cat(
      {loaded.model->forward(tokens.narrow(1, 0, 17), pieces)[0],
       loaded.model->forward(tokens.narrow(1, 17, 1483), pieces)[0]},
      0
  );
  const at::Tensor wanted = golden.get("values");  // every 16th logit
  for (const at::Tensor& logits : {whole, split}) {
    const at::Tensor got = logits.index_select(0, golden.get("places")).slice(1, 0, {}, 16);
    const double error = ((got - wanted).abs().max() / wanted.abs().max()).item<double>();
    EXPECT_LT(error, 1e-4);
    const at::Tensor same = (logits.argmax(-1) == golden.get("top")).to(at::kDouble).mean();
    EXPECT_GT(same.item<double>(), 0.998);  // two tokens may be equally likely
  }
}

TEST(RealModels, Smollm2WritesTheTextOfTransformers) {
  if (!is_here("smollm2-135m")) GTEST_SKIP() << "run first: horner get smollm2-135m";
  const LoadedModel loaded = open_model("smollm2-135m");
  const Safetensors golden = Safetensors::open(kGoldens + "smollm2-135m.safetensors");
  const at::Tensor wanted = golden.get("greedy");
  const c10::NoGradGuard no_graph;
  ModelState state;
  at::Tensor next = golden.get("prompt"), text = next;
  while (text.size(1) < wanted.size(1)) {
    const at::Tensor logits = loaded.model->forward(next, state);
    next = logits.select(1, logits.size(1) - 1).argmax(-1, true);
    text = at::cat({text, next}, 1);
  }
  EXPECT_EQ(ids_of(text), ids_of(wanted));
}

TEST(RealModels, MinilmHasTheVectorsOfTransformers) {
  if (!is_here("minilm")) GTEST_SKIP() << "run first: horner get minilm";
  const LoadedModel loaded = open_model("minilm");
  const Safetensors golden = Safetensors::open(kGoldens + "minilm.safetensors");
  const at::Tensor tokens = golden.get("tokens"), lengths = golden.get("lengths");
  const std::string texts = text_of(golden.get("text"));
  const std::string first = texts.substr(0, texts.find('\n'));
  EXPECT_EQ(
      loaded.need_tokenizer().encode(first, {.surround = true}),
      ids_of(tokens[0].narrow(0, 0, lengths[0].item<int64_t>()))
  );
  const c10::NoGradGuard no_graph;
  const at::Tensor vectors = sentence_vectors(*loaded.model, tokens, lengths);
  const at::Tensor cosine = (vectors * golden.get("vectors")).sum(-1);
  EXPECT_GT(cosine.min().item<double>(), 0.99999);
  EXPECT_LT(cosine.max().item<double>(), 1.00001);
}

}  // namespace
}  // namespace horner
