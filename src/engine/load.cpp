#include "engine/load.h"

#include <algorithm>

#include "core/check.h"
#include "core/file.h"
#include "engine/cpu/cpu_runner.h"
#include "engine/cpu/open.h"
#include "engine/slot_runner.h"

namespace horner {
namespace {

// A checkpoint names the task of its training: a model of sums or of images writes no text.
void check_task(const std::string& folder, const std::string& from) {
  const std::string path = from + "/config.json";
  const Json config = parse_json(read_file(path), path);
  if (!config.is_object() || !config.contains("task") || !config["task"].is_object()) return;
  const std::string spec = config["task"].value("name", ""), name = spec.substr(0, spec.find(':'));
  HORNER_CHECK(
      name == "byte" || name == "bpe",  // the tasks of tasks/text/text.h
      "{}: it is no language model: it was trained on {}",
      folder,
      name
  );
}

// The end of a document, and special tokens that end a message in formats of chats.
std::vector<int32_t> ends_of(const Tokenizer& tokenizer) {
  std::vector<int32_t> ends;
  if (tokenizer.end()) ends.push_back(*tokenizer.end());
  for (const char* name : {"<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>"}) {
    const std::optional<int32_t> id = tokenizer.id(name);
    if (id && tokenizer.special(*id) && id != tokenizer.end()) ends.push_back(*id);
  }
  return ends;
}

}  // namespace

LanguageModel load_language_model(
    const std::string& name, at::Device device, const std::string& weights
) {
  OpenOptions options;
  options.dequantise = !device.is_cpu() || weights != "auto";
  LoadedModel opened = open_model(name, options);
  const bool unread = !options.dequantise && !opened.blocks.empty();
  if (unread && !CpuDecoder::refuses(*opened.model).empty()) opened = open_model(name);
  if (opened.architecture == "horner") check_task(name, opened.source);
  const Tokenizer& tokenizer = opened.need_tokenizer();
  LanguageModel loaded{opened, opened.model, tokenizer, opened.ends, opened.chat_template};
  for (const int32_t id : ends_of(tokenizer)) {
    if (std::find(loaded.ends.begin(), loaded.ends.end(), id) == loaded.ends.end())
      loaded.ends.push_back(id);
  }
  loaded.model->to(device);
  return loaded;
}

std::unique_ptr<Runner> fastest_runner(
    const LanguageModel& loaded,
    const std::string& weights,
    bool invariant,
    int64_t rows,
    int64_t memory
) {
  Model& model = *loaded.model;
  const auto need = [&](std::initializer_list<const char*> types, const std::string& why) {
    const bool known = std::find(types.begin(), types.end(), weights) != types.end();
    HORNER_CHECK(known, "--weights {}: cannot be used here: {}", weights, why);
  };
  if (!model.parameters().front().is_cpu()) {
    need({"auto", "bf16", "fp32"}, "the model is on a GPU");
    return slot_runner(loaded.model, {rows, invariant, weights != "fp32", memory});
  }
  const std::string reason = CpuDecoder::refuses(model);
  if (reason.empty())
    return cpu_runner(cpu_decoder(loaded.opened, weights), model.options().positions);
  need({"auto", "fp32"}, reason);
  return model_runner(loaded.model, invariant, reason);
}

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids = tokenizer.encode(text, {.surround = true});
  if (!ids.empty()) return ids;
  if (tokenizer.begin()) return {*tokenizer.begin()};
  if (tokenizer.end()) return {*tokenizer.end()};  // it stands before each document, too
  return tokenizer.encode("\n");
}

}  // namespace horner
