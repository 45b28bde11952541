// horner generate --chat: a chat on a terminal, or lines of a pipe.
#include "engine/chat.h"

#include <unistd.h>

#include <iostream>

#include "cli/generate.h"
#include "core/check.h"
#include "core/file.h"

namespace horner {
namespace {

constexpr const char* kHelp =
    "/undo takes back the last message and its answer; /fork copies the chat; /fork N goes to copy "
    "N; /save FILE writes it; /quit ends. Ctrl-C ends an answer.\n";

std::string template_of(const LanguageModel& loaded, const std::string& given) {
  if (given == "chatml") return std::string(kChatMl);
  if (!given.empty()) return read_file(given);
  if (loaded.chat_template.empty())
    throw UsageError(
        "{}: has no chat template; `--template chatml` uses the ChatML format", loaded.opened.source
    );
  return loaded.chat_template;
}

std::string token_text(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id ? tokenizer.token(*id) : "";
}

Json first_messages(const GenerateSettings& s) {
  Json messages = Json::array();
  if (!s.history.empty()) {
    messages = parse_json(read_file(s.history), s.history);
    bool good = messages.is_array();
    for (const Json& one : messages)
      good = good && one.is_object() && one.contains("role") && one["role"].is_string() &&
             one.contains("content") && one["content"].is_string();
    if (!good) throw DataError("{}: is no list of messages with role and content", s.history);
  }
  if (!s.system.empty())
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", s.system}});
  return messages;
}

class Terminal {
 public:
  Terminal(Chat& chat, Engine& engine, GenerateOptions options)
      : chat_(chat), engine_(engine), options_(std::move(options)), person_(isatty(STDIN_FILENO)) {}

  void run() {
    if (person_) std::fputs(kHelp, stderr);
    for (std::string line; ask(line);) {
      if (line == "/quit") return;
      try {
        line.starts_with('/') ? command(line) : answer(line);
      } catch (const Error& error) {  // the chat goes on
        std::fputs(fmt::format("{}\n", error.what()).c_str(), stderr);
      }
    }
  }

 private:
  bool ask(std::string& line) const {
    if (person_) show(chat_.branches() > 1 ? fmt::format("[{}] > ", chat_.branch() + 1) : "> ");
    return bool(std::getline(std::cin, line));
  }

  void answer(const std::string& line) {
    if (line.empty()) return;
    chat_.say(line);
    const WrittenText made = generate(engine_, chat_.stream(), options_, true);
    show(made.text.ends_with('\n') ? "" : "\n");
    chat_.answer(made.text);
    std::fputs(made.summary().c_str(), stderr);
  }

  void command(const std::string& line) {
    const std::string word = line.substr(0, line.find(' '));
    const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
    if (word == "/undo") {
      say(chat_.undo() ? fmt::format("{} messages are left", chat_.messages().size())
                       : "there is nothing to take back");
    } else if (word == "/fork" && rest.empty()) {
      chat_.fork();
      say(fmt::format("this is copy {}; /fork {} goes back", chat_.branches(), chat_.branches() - 1)
      );
    } else if (word == "/fork") {
      const bool number = rest.size() < 9 && rest.find_first_not_of("0123456789") == rest.npos;
      const bool there = number && chat_.go_to(size_t(std::stol(rest)) - 1);
      say(there ? fmt::format("this is copy {}, with {} messages", rest, chat_.messages().size())
                : fmt::format("there is no copy '{}'; there are {}", rest, chat_.branches()));
    } else if (word == "/save" && !rest.empty()) {
      write_file(rest, chat_.messages().dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
      say(fmt::format("{}: {} messages; --history {} goes on", rest, chat_.messages().size(), rest)
      );
    } else {
      std::fputs(kHelp, stderr);
    }
  }
  static void say(const std::string& text) { std::fputs((text + "\n").c_str(), stderr); }

  Chat& chat_;
  Engine& engine_;
  GenerateOptions options_;
  const bool person_;
};

}  // namespace

int run_chat(
    Engine& engine, const LanguageModel& loaded, const GenerateSettings& s, GenerateOptions options
) {
  const Tokenizer& tokenizer = loaded.tokenizer;
  const ChatTemplate format(
      template_of(loaded, s.format),
      token_text(tokenizer, tokenizer.begin()),
      token_text(tokenizer, tokenizer.end())
  );
  Chat chat(engine, format, first_messages(s));
  Terminal(chat, engine, std::move(options)).run();
  return 0;
}

}  // namespace horner
