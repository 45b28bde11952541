#include <gtest/gtest.h>

#include <filesystem>

#include "core/check.h"
#include "engine/load.h"
#include "io/safetensors.h"
#include "model/formats/known.h"

namespace horner {
namespace {

std::vector<int32_t> ids_of(const at::Tensor& x) {
  const at::Tensor ids = x.to(at::kInt).contiguous().flatten();
  return {ids.const_data_ptr<int32_t>(), ids.const_data_ptr<int32_t>() + ids.numel()};
}

// What `horner generate --weights fp32` computes, beyond the ends of texts.
TEST(EngineRealModels, Smollm2WritesTheTextOfTransformersInFp32) {
  if (!find_known_model("smollm2-135m") ||
      !std::filesystem::exists(known_model_path(*find_known_model("smollm2-135m"))))
    GTEST_SKIP() << "run first: horner get smollm2-135m";
  const LanguageModel loaded = load_language_model("smollm2-135m", at::kCPU, "fp32");
  Engine engine(fastest_runner(loaded, "fp32"), loaded.tokenizer);
  const Safetensors golden =
      Safetensors::open("src/model/formats/goldens/real/smollm2-135m.safetensors");
  const std::vector<int32_t> prompt = ids_of(golden.get("prompt"));
  const int64_t stream = engine.open();
  engine.feed(stream, prompt);
  engine.generate(stream, {.sampling = {.temperature = 0}, .tokens = 200, .ignore_end = true});
  while (!engine.idle()) engine.work();
  EXPECT_EQ(engine.tokens(stream), ids_of(golden.get("greedy")));
}

}  // namespace
}  // namespace horner
