#include "serve/text_answer.h"

#include <chrono>

#include "serve/random_bits.h"

namespace horner {
namespace {

int64_t seconds_now() {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

std::string new_id(bool chat) {
  return fmt::format("{}-{:016x}", chat ? "chatcmpl" : "cmpl", random_bits());
}

Json finish_reason(Finish finish) {
  if (finish == Finish::none) return nullptr;
  return finish == Finish::tokens || finish == Finish::longest ? "length" : "stop";
}

int64_t characters(std::string_view text) {
  int64_t count = 0;
  for (const char byte : text) count += (uint8_t(byte) & 0xc0) != 0x80;
  return count;
}

Json empty_logprobs(bool chat) {
  if (chat) return {{"content", Json::array()}};
  return {
      {"tokens", Json::array()},
      {"token_logprobs", Json::array()},
      {"top_logprobs", Json::array()},
      {"text_offset", Json::array()}};
}

}  // namespace

TextAnswer::TextAnswer(const ServedModel& model, const TextRequest& request)
    : model_(model),
      request_(request),
      id_(new_id(request.chat)),
      created_(seconds_now()),
      choices_(request.choices()),
      offsets_(request.choices()),
      left_(request.choices()) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (request.echo) choices_[i].text = request.shown[i / size_t(request.n)];
    if (request.logprobs) choices_[i].logprobs = empty_logprobs(request.chat);
  }
}

std::string TextAnswer::token_text(int32_t token) const {
  return token < model_.tokenizer.vocabulary() ? model_.tokenizer.bytes(token) : "";
}

// Names of tokens are keys, so each must be another one: half a character is written byte by byte.
std::string TextAnswer::token_name(int32_t token) const {
  if (token >= model_.tokenizer.vocabulary()) return fmt::format("<{}>", token);
  const std::string bytes =
      model_.tokenizer.special(token) ? model_.tokenizer.token(token) : token_text(token);
  if (is_utf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char byte : bytes) name += fmt::format("\\x{:02x}", uint8_t(byte));
  return name;
}

Json TextAnswer::chat_token(const SampledToken& token) const {
  const auto one = [&](int32_t id, double logprob) {
    Json bytes = Json::array();
    for (const char byte : token_text(id)) bytes.push_back(uint8_t(byte));
    return Json{{"token", token_name(id)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
  };
  Json json = one(token.token, token.logprob);
  json["top_logprobs"] = Json::array();
  for (const TokenLogprob& top : token.top)
    json["top_logprobs"].push_back(one(top.token, top.logprob));
  return json;
}

void TextAnswer::add_logprobs(Json& to, const SampledToken& token, bool first, int64_t& offset)
    const {
  if (request_.chat) {
    to["content"].push_back(chat_token(token));
    return;
  }
  to["tokens"].push_back(token_name(token.token));
  to["text_offset"].push_back(offset);
  offset += characters(token_text(token.token));
  if (first) {  // nothing stands before it
    to["token_logprobs"].push_back(nullptr);
    to["top_logprobs"].push_back(nullptr);
    return;
  }
  to["token_logprobs"].push_back(token.logprob);
  Json top = Json::object();
  for (const TokenLogprob& other : token.top) top[token_name(other.token)] = other.logprob;
  top[token_name(token.token)] =
      token.logprob;  // the same number, whether it is among the likeliest or not
  to["top_logprobs"].push_back(std::move(top));
}

// A chunk of text alone, which most are: what stands around the text is made once for each choice. The text is the last string
// of a chunk.
std::string TextAnswer::text_chunk(size_t choice, const std::string& text) {
  std::string& before = choices_[choice].before_text;
  if (before.empty()) {
    const std::string line = to_line(chunk(choice, "", nullptr, Finish::none));
    const size_t at = line.rfind("\"\"");
    before = line.substr(0, at);
    after_text_ = line.substr(at + 2);
  }
  return before + to_line(text) + after_text_;
}

std::vector<std::string> TextAnswer::add(TextEvent told) {
  const bool plain = request_.stream && !request_.logprobs && !has_tools() && !told.first &&
                     told.event.finish == Finish::none;
  std::vector<std::string> lines;
  if (plain) {
    text_tokens_ += told.event.has_token;
    if (!told.event.text.empty()) lines.push_back(text_chunk(told.choice, told.event.text));
    return lines;
  }
  for (const Json& chunk : chunks_of(std::move(told))) lines.push_back(to_line(chunk));
  return lines;
}

std::vector<Json> TextAnswer::chunks_of(TextEvent told) {
  Choice& choice = choices_[told.choice];
  const Event& event = told.event;
  std::vector<Json> chunks;
  Json logprobs;
  if (request_.logprobs) logprobs = empty_logprobs(request_.chat);
  const size_t prompt = told.choice / size_t(request_.n);
  if (told.first) {
    if (told.choice % size_t(request_.n) == 0) {
      prompt_tokens_ += told.prompt_tokens;
      cached_tokens_ += told.cached_tokens;
    }
    if (request_.echo && request_.logprobs) {
      add_logprobs(logprobs, {request_.prompts[prompt][0], 0, {}}, true, offsets_[told.choice]);
      for (const SampledToken& token : told.prompt_scores)
        add_logprobs(logprobs, token, false, offsets_[told.choice]);
    }
    if (request_.chat && request_.stream) {
      chunks.push_back(chunk(told.choice, "", nullptr, Finish::none));
      chunks.back()["choices"][0]["delta"] = {{"role", "assistant"}, {"content", ""}};
    }
  }
  if (event.has_token) {
    ++text_tokens_;
    if (request_.logprobs) add_logprobs(logprobs, event.sampled, false, offsets_[told.choice]);
  }
  choice.finish = event.finish;
  if (event.finish != Finish::none) {
    --left_;
    state_bytes_ += told.state_bytes;
  }
  if (request_.stream) {
    if (has_tools()) {  // whether it calls one is known at the end
      choice.text += event.text;
      if (event.finish != Finish::none) add_message(chunks, told.choice);
      return chunks;
    }
    const std::string text = told.first && request_.echo ? choice.text + event.text : event.text;
    const bool tokens = request_.logprobs && event.has_token;
    if (!text.empty() || tokens) chunks.push_back(chunk(told.choice, text, logprobs, Finish::none));
    if (event.finish != Finish::none)
      chunks.push_back(chunk(told.choice, "", nullptr, event.finish));
    return chunks;
  }
  choice.text += event.text;
  if (!request_.logprobs) return chunks;
  for (const auto& [name, list] : logprobs.items()) {
    for (Json& entry : list) choice.logprobs[name].push_back(std::move(entry));
  }
  return chunks;
}

// The message of an answer: text, or calls of tools.
Json TextAnswer::message_of(const std::string& text) const {
  Json message = {{"role", "assistant"}, {"content", text}};
  if (!has_tools()) return message;
  ParsedAnswer parsed = parse_answer(text, request_.form, "call_" + id_.substr(9) + "_");
  if (parsed.tool_calls.empty()) return message;
  message["content"] = parsed.content.empty() ? Json(nullptr) : Json(parsed.content);
  message["tool_calls"] = std::move(parsed.tool_calls);
  return message;
}

void TextAnswer::add_message(std::vector<Json>& chunks, size_t choice) const {
  Json delta = message_of(choices_[choice].text);
  const bool calls = delta.contains("tool_calls");
  delta.erase("role");
  for (size_t i = 0; calls && i < delta["tool_calls"].size(); ++i)
    delta["tool_calls"][i]["index"] = i;
  chunks.push_back(chunk(choice, "", nullptr, Finish::none));
  chunks.back()["choices"][0]["delta"] = std::move(delta);
  chunks.push_back(chunk(choice, "", nullptr, choices_[choice].finish));
  if (calls) chunks.back()["choices"][0]["finish_reason"] = "tool_calls";
}

Json TextAnswer::head(const char* object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_.name}};
}

Json TextAnswer::usage() const {
  return {
      {"prompt_tokens", prompt_tokens_},
      {"completion_tokens", text_tokens_},
      {"total_tokens", prompt_tokens_ + text_tokens_},
      {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}}};
}

Json TextAnswer::chunk(size_t choice, const std::string& text, Json logprobs, Finish finish) const {
  Json json = head(request_.chat ? "chat.completion.chunk" : "text_completion");
  Json one = {{"index", choice}};
  if (request_.chat) {
    one["delta"] = finish == Finish::none ? Json{{"content", text}} : Json::object();
  } else {
    one["text"] = text;
  }
  one["logprobs"] = std::move(logprobs);
  one["finish_reason"] = finish_reason(finish);
  json["choices"] = Json::array({std::move(one)});
  if (request_.include_usage) json["usage"] = nullptr;
  return json;
}

Json TextAnswer::usage_chunk() const {
  Json json = head(request_.chat ? "chat.completion.chunk" : "text_completion");
  json["choices"] = Json::array();
  json["usage"] = usage();
  json["horner"] = {{"state_bytes", state_bytes_}};
  return json;
}

Json TextAnswer::whole() const {
  Json json = head(request_.chat ? "chat.completion" : "text_completion");
  json["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json one = {{"index", i}};
    if (request_.chat) {
      one["message"] = message_of(choice.text);
    } else {
      one["text"] = choice.text;
    }
    one["logprobs"] = choice.logprobs;
    const bool calls = one.contains("message") && one["message"].contains("tool_calls");
    one["finish_reason"] = calls ? Json("tool_calls") : finish_reason(choice.finish);
    json["choices"].push_back(std::move(one));
  }
  json["usage"] = usage();
  json["horner"] = {{"state_bytes", state_bytes_}};
  return json;
}

}  // namespace horner
