// The answer to a request for texts: OpenAI's JSON, whole or in chunks.
#pragma once

#include "serve/text_request.h"

namespace horner {

class TextAnswer {
 public:
  TextAnswer(const ServedModel& model, const TextRequest& request);

  // What the clients of a stream are sent for this event: nothing, one or two chunks, each as a line of JSON.
  std::vector<std::string> add(TextEvent event);
  bool done() const { return left_ == 0; }

  Json whole() const;
  Json usage_chunk() const;

 private:
  struct Choice {
    std::string text;
    Json logprobs;            // of what was shown so far
    std::string before_text;  // of a chunk of text alone
    Finish finish = Finish::none;
  };
  std::string text_chunk(size_t choice, const std::string& text);
  std::vector<Json> chunks_of(TextEvent event);
  Json head(const char* object) const;
  Json usage() const;
  Json chunk(size_t choice, const std::string& text, Json logprobs, Finish finish) const;
  void add_logprobs(Json& to, const SampledToken& token, bool first, int64_t& offset) const;
  Json message_of(const std::string& text) const;
  void add_message(std::vector<Json>& chunks, size_t choice) const;
  bool has_tools() const { return request_.chat && !request_.form.tools.empty(); }
  Json chat_token(const SampledToken& token) const;
  std::string token_text(int32_t token) const;
  std::string token_name(int32_t token) const;

  const ServedModel& model_;
  const TextRequest& request_;
  const std::string id_;
  const int64_t created_;
  std::vector<Choice> choices_;
  std::vector<int64_t> offsets_;  // (choices): characters before the next token
  size_t left_;
  std::string after_text_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, text_tokens_ = 0, state_bytes_ = 0;
};

}  // namespace horner
