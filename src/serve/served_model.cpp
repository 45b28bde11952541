#include "serve/served_model.h"

#include <chrono>
#include <filesystem>
#include <regex>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/range.h"
#include "model/formats/model_files.h"

namespace horner {
namespace {

std::string name_of(const std::string& model) {
  std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename();
}

std::string token_text(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id ? tokenizer.token(*id) : "";
}

// Tells models apart whose states must not be mixed: the weights, settings and tokenizer, and who computes with them. With another
// number of threads a state is the same.
std::string fingerprint_of(const std::string& model, const Runner& runner) {
  std::string text = std::regex_replace(runner.name(), std::regex(", [0-9]+ threads?"), "");
  for (const Json& file : model_files(model)) text += "\n" + file["xxh128"].get<std::string>();
  return xxh128(text);
}

}  // namespace

void check(const ServeOptions& o) {
  check_range("streams", o.streams, 1, 65536);
  check_range("queue", o.queue, 1, 1000000);
  check_range("prompt", o.prompt, 0, 1 << 30);
  check_range("memory", o.memory, 0, 1000000000);
  check_range("cache", o.cache, 0, 1000000000);
}

std::unique_ptr<ServedModel> serve_model(
    const std::string& model, const ServeOptions& o, ServeMetrics& metrics
) {
  check(o);
  const at::Device device = find_device(o.device);
  LanguageModel loaded = load_language_model(model, device, o.weights);
  const Tokenizer& tokenizer = loaded.tokenizer;
  std::string source = o.format == "chatml" ? std::string(kChatMl)
                       : !o.format.empty()  ? read_file(o.format)
                                            : loaded.chat_template;
  auto served = std::make_unique<ServedModel>(ServedModel{
      .name = o.name.empty() ? name_of(model) : o.name,
      .created = std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch()
      )
                     .count(),
      .tokenizer = tokenizer,
      .ends = loaded.ends,
      .chat_source = source,
      .trie = nullptr,
      .chat = {},
      .defaults = loaded.opened.defaults,
      .longest_prompt = o.prompt > 0                ? o.prompt
                        : loaded.opened.context > 0 ? loaded.opened.context
                                                    : 32768,
      .computed_by = "",
      .worker = nullptr,
      .embedder = nullptr});
  if (!loaded.model->causal()) {
    served->embedder = std::make_unique<Embedder>(loaded.model, tokenizer, served->longest_prompt);
    served->computed_by = describe_device(device);
    return served;
  }
  if (!source.empty())
    served->chat.emplace(
        source, token_text(tokenizer, tokenizer.begin()), token_text(tokenizer, tokenizer.end())
    );
  served->trie = std::make_shared<const TokenTrie>(tokenizer);
  const int64_t memory = o.memory > 0 ? o.memory << 20 : free_memory(device) / 2;
  std::unique_ptr<Runner> runner =
      fastest_runner(loaded, o.weights, o.invariant, o.streams, memory);
  served->computed_by = runner->name();
  WorkerOptions w;
  w.streams = o.streams;
  w.queue = o.queue;
  w.state_bytes = memory;
  w.cache_bytes = o.cache << 20;
  w.states_folder = o.states;
  if (!o.states.empty()) w.fingerprint = fingerprint_of(model, *runner);
  served->worker = std::make_unique<Worker>(std::move(runner), tokenizer, w, metrics);
  return served;
}

}  // namespace horner
