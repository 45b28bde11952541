// What `horner generate` does with a model: one text, or a chat.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/options.h"
#include "engine/load.h"

namespace horner {

struct GenerateSettings {
  std::string model, prompt, prompt_file, format, history, system, schema, regex;
  std::vector<std::string> stop;
  bool prompt_given = false, regex_given = false, echo = false, json = false, chat = false;
  int64_t tokens = 256;
  std::string device = "auto", weights = "auto";
  SamplingOptions sampling;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("tokens", tokens, "most tokens of the text");
    visit("device", device, "auto, cpu, cuda or cuda:N");
    visit(
        "weights",
        weights,
        "on a CPU: bits of the weights; auto: as the file has them",
        {"auto", "fp32", "bf16", "q8", "q4"}
    );
    sampling.visit(visit);
  }
};

// What was written, and how fast.
struct WrittenText {
  std::string text;
  Finish finish = Finish::none;
  std::vector<SampledToken> tokens;
  int64_t prompt_tokens = 0;  // that had to be read
  double prompt_seconds = 0, text_seconds = 0;
  int64_t state_bytes = 0;
  std::string computed_by;  // weights and device

  double prompt_speed() const;
  double text_speed() const;  // the first token comes with the prompt
  std::string summary() const;
};

void show(const std::string& text);  // on stdout, at once
// Writes until the text ends or Ctrl-C is pressed; to stdout if `shown`.
WrittenText generate(Engine& engine, int64_t stream, const GenerateOptions& options, bool shown);

// Reads messages from standard input until it ends or /quit.
int run_chat(
    Engine& engine,
    const LanguageModel& loaded,
    const GenerateSettings& settings,
    GenerateOptions options
);

}  // namespace horner
