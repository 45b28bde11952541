// horner generate: text from a model, as it is written.
#include "cli/generate.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/number.h"
#include "lab/get/get.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace horner {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A backslash in a flag: \n, \t, \\.
std::string unescape(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    plain += next == 'n' ? '\n' : next == 't' ? '\t' : next == '\\' ? '\\' : text[i];
    if (next == 'n' || next == 't' || next == '\\') ++i;
  }
  return plain;
}

std::string read_prompt(const GenerateSettings& s) {
  HORNER_CHECK(
      !s.prompt_given || s.prompt_file.empty(), "--prompt and --prompt-file exclude each other"
  );
  if (s.prompt_given) return s.prompt;
  if (!s.prompt_file.empty()) return read_file(s.prompt_file);
  if (isatty(STDIN_FILENO)) return "";
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

Json json_of(
    const WrittenText& g, const GenerateSettings& s, const Engine& engine, const std::string& prompt
) {
  Json json = {
      {"model", s.model},
      {"prompt", as_utf8(prompt)},
      {"text", g.text},
      {"finish", finish_name(g.finish)},
      {"tokens", {{"prompt", g.prompt_tokens}, {"text", g.tokens.size()}}},
      {"tokens_per_second",
       {{"prompt", number_or_null(g.prompt_speed())}, {"text", number_or_null(g.text_speed())}}},
      {"state_bytes", g.state_bytes},
      {"computed_by", g.computed_by},
      {"ids", Json::array()}};
  const auto entry = [&](int32_t token, double logprob) {
    const bool named = token < engine.tokenizer().vocabulary();
    return Json{
        {"token", named ? as_utf8(engine.tokenizer().token(token)) : ""},
        {"id", token},
        {"logprob", number_or_null(logprob)}};
  };
  for (const SampledToken& token : g.tokens) json["ids"].push_back(token.token);
  if (s.sampling.logprobs < 0) return json;
  json["logprobs"] = Json::array();
  for (const SampledToken& token : g.tokens) {
    Json one = entry(token.token, token.logprob);
    one["top"] = Json::array();
    for (const TokenLogprob& other : token.top)
      one["top"].push_back(entry(other.token, other.logprob));
    json["logprobs"].push_back(std::move(one));
  }
  return json;
}

// Without a model: a small one that everybody may use. It is downloaded once.
std::string default_model() {
  const KnownModel& known = *find_known_model("smollm2-135m");
  std::error_code error;
  if (std::filesystem::exists(known_model_path(known), error)) return known_model_path(known);
  show_status(fmt::format("no model was named: getting {}\n", known.name));
  return get_model(known).folder;
}

// What --schema or --regex demands of the text.
std::optional<grammar::Grammar> grammar_of(const GenerateSettings& s) {
  HORNER_CHECK(s.schema.empty() || !s.regex_given, "--schema and --regex exclude each other");
  if (s.regex_given) return grammar::regex_grammar(s.regex);
  if (s.schema.empty()) return {};
  if (s.schema.starts_with('{')) return grammar::schema_grammar(parse_json(s.schema, "--schema"));
  try {
    return grammar::schema_grammar(parse_json(read_file(s.schema), s.schema));
  } catch (const UsageError& error) {
    throw UsageError("{}: {}", s.schema, error.what());
  }
}

int run(const GenerateSettings& s) {
  HORNER_CHECK(
      !s.chat || !(s.prompt_given || !s.prompt_file.empty() || s.json),
      "--chat takes no --prompt, --prompt-file or --json"
  );
  GenerateOptions options;
  options.sampling = s.sampling;
  options.tokens = s.tokens;
  for (const std::string& stop : s.stop) options.stop.push_back(unescape(stop));
  const TokenSampler checked_before_the_model_is_read(s.sampling);
  std::optional<grammar::Grammar> demanded = grammar_of(s);
  const std::string prompt = s.chat ? "" : read_prompt(s);
  const std::string model = s.model.empty() ? default_model() : s.model;
  LanguageModel loaded = load_language_model(model, find_device(s.device), s.weights);
  options.ends = loaded.ends;
  if (demanded) {
    options.mask = std::make_shared<const TokenMask>(
        std::make_shared<const TokenTrie>(loaded.tokenizer), std::move(*demanded)
    );
  }
  Engine engine(fastest_runner(loaded, s.weights), loaded.tokenizer);
  if (s.chat) return run_chat(engine, loaded, s, options);
  const int64_t stream = engine.open();
  engine.feed(stream, prompt_tokens(loaded.tokenizer, prompt));
  if (s.echo && !s.json) show(prompt);
  const WrittenText made = generate(engine, stream, options, !s.json);
  if (s.json) {
    fmt::print("{}\n", json_of(made, s, engine, prompt).dump(2));
  } else {
    if (!made.text.ends_with('\n')) show("\n");
    std::fputs(wrapped(made.summary(), terminal_width(STDERR_FILENO)).c_str(), stderr);
  }
  return made.finish == Finish::cancelled ? 130 : 0;
}

}  // namespace

void show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category(), "stdout");
}

WrittenText generate(Engine& engine, int64_t stream, const GenerateOptions& options, bool shown) {
  WrittenText made;
  made.prompt_tokens = int64_t(engine.tokens(stream).size()) - engine.tokens_read(stream);
  const CatchInterrupt catch_interrupt;
  engine.generate(stream, options);
  auto start = Clock::now();
  for (bool ended = false; !ended && !engine.idle();) {
    ended = interrupted();  // a prompt that is not read to its end waits for the next text
    if (ended) engine.cancel(stream);
    for (const Event& event : engine.work()) {
      if (event.has_token && made.tokens.empty()) {
        made.prompt_seconds = seconds_since(start);
        start = Clock::now();
      }
      if (event.has_token) made.tokens.push_back(event.sampled);
      made.text += event.text;
      made.finish = event.finish;
      if (shown && !event.text.empty()) show(event.text);
    }
  }
  made.text_seconds = seconds_since(start);
  made.state_bytes = engine.state_bytes(stream);
  made.computed_by = engine.runner().name();
  return made;
}

double WrittenText::prompt_speed() const {
  return double(prompt_tokens) / std::max(prompt_seconds, 1e-9);
}
double WrittenText::text_speed() const {
  return tokens.size() < 2 ? 0 : double(tokens.size() - 1) / std::max(text_seconds, 1e-9);
}

std::string WrittenText::summary() const {
  return fmt::format(
      "[prompt {} tokens, {} tok/s; text {} tokens, {} tok/s, ended by {}; state {}; {}]\n",
      prompt_tokens,
      short_count(prompt_speed()),
      tokens.size(),
      short_count(text_speed()),
      finish_name(finish),
      short_bytes(double(state_bytes)),
      computed_by
  );
}

std::function<int()> declare_generate(CLI::App& app) {
  const auto s = std::make_shared<GenerateSettings>();
  app.add_option(
      "model",
      s->model,
      "run folder, model folder, GGUF file or name of `horner get`; none: smollm2-135m"
  );
  app.add_option_function<std::string>(
      "--prompt",
      [s](const std::string& text) { s->prompt = text, s->prompt_given = true; },
      "the text goes on after this; none: standard input"
  );
  app.add_option("--prompt-file", s->prompt_file, "file with the prompt");
  app.add_option("--stop", s->stop, "end before this text; \\n is a new line; may be repeated")
      ->allow_extra_args(false);
  app.add_option(
      "--schema",
      s->schema,
      "file with a JSON schema, or the schema itself; the text is JSON that satisfies it"
  );
  app.add_option_function<std::string>(
      "--regex",
      [s](const std::string& text) { s->regex = text, s->regex_given = true; },
      "the whole text matches this regular expression, as '[0-9]+ (apples|pears)'"
  );
  app.add_flag("--chat", s->chat, "a chat: each line of standard input is a message; /help");
  app.add_option("--template", s->format, "of the chat: chatml, or a file; none: the model's own");
  app.add_option("--system", s->system, "first message of a chat, from the system");
  app.add_option("--history", s->history, "file of /save: the chat goes on from there");
  app.add_flag("--echo", s->echo, "write the prompt before the text");
  add_flags(app, *s);
  app.add_flag(
      "--json", s->json, "text, token ids, log-probabilities and speed as JSON, at the end"
  );
  return [s] { return run(*s); };
}

}  // namespace horner
