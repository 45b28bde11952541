// A chat with a model: messages, branches of them, and the streams that hold their states.
#pragma once

#include "engine/engine.h"
#include "model/chat_template.h"

namespace horner {

class Chat {
 public:
  // `messages`: what was said before, [{"role": .., "content": ..}, ..].
  Chat(Engine& engine, const ChatTemplate& format, Json messages = Json::array());

  // The user's message. Its stream is then ready to generate the answer. DataError if the template refuses it; nothing is
  // changed then.
  void say(const std::string& text);
  void answer(const std::string& text);  // what was generated
  bool undo();  // takes back the last message of the user and its answer; false: there is none
  void fork();  // a copy of this branch becomes the present one
  bool go_to(size_t branch);  // false: there is none of this number

  int64_t stream() const { return branches_[now_].stream; }
  const Json& messages() const { return branches_[now_].messages; }
  size_t branch() const { return now_; }
  size_t branches() const { return branches_.size(); }

 private:
  struct Branch {
    Json messages;
    int64_t stream;
  };
  void feed(const Json& messages, bool add_prompt);

  Engine& engine_;
  const ChatTemplate& format_;
  std::vector<Branch> branches_;
  size_t now_ = 0;
};

}  // namespace horner
