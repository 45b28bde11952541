#include "engine/chat.h"

namespace horner {

Chat::Chat(Engine& engine, const ChatTemplate& format, Json messages)
    : engine_(engine), format_(format) {
  branches_.push_back({std::move(messages), engine.open()});
  if (!branches_[0].messages.empty()) feed(branches_[0].messages, false);
}

// The whole chat is rendered again. What it has in common with the stream is kept, and a snapshot before each message makes
// an undo cheap.
void Chat::feed(const Json& messages, bool add_prompt) {
  const std::vector<int32_t> tokens =
      chat_tokens(engine_.tokenizer(), format_.render(messages, add_prompt));
  engine_.keep(stream());
  engine_.replace(stream(), tokens);
}

void Chat::say(const std::string& text) {
  Json messages = branches_[now_].messages;
  messages.push_back({{"role", "user"}, {"content", text}});
  feed(messages, true);
  branches_[now_].messages = std::move(messages);
}

void Chat::answer(const std::string& text) {
  branches_[now_].messages.push_back({{"role", "assistant"}, {"content", text}});
}

bool Chat::undo() {
  Json& messages = branches_[now_].messages;
  size_t last = messages.size();
  while (last > 0 && messages[last - 1].value("role", "") != "user") --last;
  if (last == 0) return false;
  messages.erase(messages.begin() + int64_t(last) - 1, messages.end());
  if (messages.empty()) {
    engine_.roll_back(stream(), 0);
  } else {
    feed(messages, false);
  }
  return true;
}

void Chat::fork() {
  branches_.push_back({branches_[now_].messages, engine_.fork(stream())});
  now_ = branches_.size() - 1;
}

bool Chat::go_to(size_t branch) {
  if (branch >= branches_.size()) return false;
  now_ = branch;
  return true;
}

}  // namespace horner
