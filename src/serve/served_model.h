// What a server knows of its model, and who computes for it.
#pragma once

#include "engine/load.h"
#include "model/chat_template.h"
#include "serve/embedder.h"
#include "serve/worker.h"

namespace horner {

struct ServedModel {
  std::string name;
  int64_t created = 0;
  Tokenizer tokenizer;
  std::vector<int32_t> ends;
  std::string chat_source;                // Jinja; empty: none
  std::shared_ptr<const TokenTrie> trie;  // for answers of a form
  std::optional<ChatTemplate> chat;
  GenerationDefaults defaults;
  int64_t longest_prompt = 0;  // tokens
  std::string computed_by;
  std::unique_ptr<Worker> worker;      // of a language model
  std::unique_ptr<Embedder> embedder;  // of an encoder
};

struct ServeOptions {
  std::string name, device = "auto", weights = "auto", format, states;
  bool invariant = true;
  int64_t streams = 16, queue = 256, prompt = 0, memory = 0, cache = 1024;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("name", name, "of the model in answers; none: the last part of MODEL");
    visit("streams", streams, "texts that are written at a time");
    visit("queue", queue, "prompts that wait for a stream; more are refused (429)");
    visit(
        "invariant",
        invariant,
        "a text has the same bits alone and among others; off: recurrent models write faster"
    );
    visit("prompt", prompt, "most tokens of a prompt; 0: what the model was made for, or 32768");
    visit(
        "memory", memory, "MiB for the states of all texts; 0: half of what is free at the start"
    );
    visit("cache", cache, "MiB of states that are kept for prompts that begin alike; 0: none");
    visit("states", states, "folder of named states; none: they live as long as the server");
    visit("template", format, "of chats: chatml, or a file; none: the model's own");
    visit("device", device, "auto, cpu, cuda or cuda:N");
    visit(
        "weights",
        weights,
        "on a CPU: bits of the weights; auto: as the file has them",
        {"auto", "fp32", "bf16", "q8", "q4"}
    );
  }
};

void check(const ServeOptions& options);  // UsageError if a number is out of its range

// Reads the model and starts its worker.
std::unique_ptr<ServedModel> serve_model(
    const std::string& model, const ServeOptions& options, ServeMetrics& metrics
);

}  // namespace horner
