// Requests from outside: whatever they hold, each is answered, by no status of 500 and above, and the server goes on.
//
// Bodies that are right are changed at random: fields get other values, go, or come from other requests; some then lose or
// gain bytes. HORNER_API_REQUESTS says how many; the same number gives the same requests.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "serve/api.h"

namespace horner {
namespace {

// What comes next depends on the last token alone, so that ten million requests take minutes.
class LastToken : public Runner {
 public:
  static constexpr int64_t kTokens = 257;
  int64_t vocabulary() const override { return kTokens; }
  std::string name() const override { return "a table"; }
  int64_t weight_bytes() const override { return 0; }
  std::unique_ptr<StreamState> open() override { return std::make_unique<StreamState>(); }
  std::unique_ptr<StreamState> fork(const StreamState&) override { return open(); }
  int64_t bytes_after(int64_t) const override { return 64; }
  int64_t bytes(const StreamState&) const override { return 64; }
  Tensors tensors(const StreamState&) const override { return {}; }
  std::unique_ptr<StreamState> restore(const Tensors&) override { return open(); }
  void read(StreamState&, std::span<const int32_t> tokens, at::Tensor* logits) override {
    if (logits) *logits = rows(tokens);
  }
  at::Tensor step(std::span<StreamState* const>, std::span<const int32_t> tokens) override {
    return rows(tokens);
  }

 private:
  static at::Tensor rows(std::span<const int32_t> tokens) {
    at::Tensor logits = at::empty({int64_t(tokens.size()), kTokens});
    float* to = logits.data_ptr<float>();
    for (const int32_t token : tokens) {
      for (int64_t i = 0; i < kTokens; ++i) *to++ = float(token * 31 % 17 + i * 7 % 23) / 8;
    }
    return logits;
  }
};

ServedModel small_model(ServeMetrics& metrics) {
  const Tokenizer tokenizer = byte_tokenizer();
  WorkerOptions w;
  w.cache_bytes = 1 << 20;
  w.states = 64;
  ServedModel served{
      .name = "tiny",
      .created = 0,
      .tokenizer = tokenizer,
      .ends = {256},
      .chat_source = std::string(kChatMl),
      .trie = std::make_shared<const TokenTrie>(tokenizer),
      .chat = ChatTemplate(std::string(kChatMl), "", ""),
      .defaults = {},
      .longest_prompt = 512,
      .computed_by = "",
      .worker = std::make_unique<Worker>(std::make_unique<LastToken>(), tokenizer, w, metrics),
      .embedder = nullptr};
  return served;
}

struct Known {
  const char* path;
  const char* body;
};
constexpr Known kKnown[] = {
    {"/v1/completions",
     R"({"prompt": "ab", "max_tokens": 2, "temperature": 0.5, "seed": 1, "stop": ["x"]})"},
    {"/v1/completions",
     R"({"prompt": ["a", "b"], "n": 2, "logprobs": 3, "echo": true, "max_tokens": 0})"},
    {"/v1/completions",
     R"({"prompt": [[1, 2], [3]], "stream": true, "stream_options": {"include_usage": true}})"},
    {"/v1/completions",
     R"({"prompt": [5, 6], "regex": "(a|b)+c?", "top_k": 3, "top_p": 0.5, "min_p": 0.1})"},
    {"/v1/completions",
     R"({"state": "s", "prompt": "c", "save_state": "t", "logit_bias": {"7": -100}})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}],
         "max_tokens": 2, "logprobs": true, "top_logprobs": 2, "repetition_penalty": 1.1})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "user", "content": "b"}], "stream": true, "response_format": {"type": "json_schema",
         "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0,
         "maximum": 9}, "b": {"enum": ["x", 1, null]}}, "required": ["a"], "additionalProperties": false}}}})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function":
         {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "r"}], "tool_choice": "auto",
         "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]})"},
    {"/v1/embeddings", R"({"input": ["a"], "encoding_format": "base64"})"},
    {"/tokenize", R"({"prompt": "h\u00e9", "add_special_tokens": false})"},
    {"/detokenize", R"({"tokens": [104, 105]})"},
    {"/apply-template",
     R"({"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": true})"},
    {"/states", R"({"name": "s", "prompt": "abc"})"},
    {"/states/s/fork", R"({"name": "t"})"},
    {"/states/s/roll_back", R"({"tokens": 1})"},
};
constexpr const char* kValues[] = {
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1",
    "2",
    "3.5",
    "-0.0",
    "1e308",
    "1e-320",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "257",
    "256",
    "\"\"",
    "\"a\"",
    "\"tiny\"",
    "\"s\"",
    "\"../x\"",
    "\"\\u0000\"",
    "\"\\ud83d\\ude00\"",
    "\"[a-\"",
    "\"(a{1,9}){1,9}\"",
    "\"\\\\p{L}+\"",
    "[]",
    "[[]]",
    "[null]",
    "[0, \"a\"]",
    "[\"a\", 0]",
    "[256, 257]",
    "{}",
    "{\"type\": \"object\"}",
    "{\"type\": [\"string\", 7]}",
    "{\"$ref\": \"#\"}",
    "{\"anyOf\": []}",
    "{\"a\": {\"a\": {\"a\": [[[[{}]]]]}}}",
    "\"json_object\"",
    "\"required\"",
};

class Requests {
 public:
  explicit Requests(uint64_t seed) : random_(seed) {}

  ApiRequest next() {
    const Known& known = kKnown[below(std::size(kKnown))];
    ApiRequest request;
    request.method = below(40) > 0 ? "POST" : below(2) > 0 ? "GET" : "DELETE";
    request.path = below(40) > 0 ? known.path : kKnown[below(std::size(kKnown))].path;
    request.content_type = below(100) > 0 ? "application/json" : "text/plain";
    Json body = Json::parse(known.body);
    for (size_t changes = below(4); changes > 0; --changes) change(body);
    keep_short(body);
    request.body = to_line(body);
    for (size_t bytes = below(8) == 0 ? 1 + below(3) : 0; bytes > 0; --bytes) spoil(request.body);
    // At most one look for a client that waits, so that a long text costs little.
    request.alive = [looks = 0]() mutable { return looks++ < 1; };
    return request;
  }
  size_t below(size_t n) { return size_t(random_() % n); }

 private:
  static void nodes(Json& json, std::vector<Json*>& all) {
    all.push_back(&json);
    if (!json.is_structured()) return;
    for (Json& child : json) nodes(child, all);
  }
  Json& any(Json& json) {
    std::vector<Json*> all;
    nodes(json, all);
    return *all[below(all.size())];
  }
  Json value() {
    if (below(20) == 0) {
      std::string text;
      for (size_t i = below(600); i > 0; --i) text += below(2) > 0 ? "\xc3\xa9" : "x";
      return text;
    }
    if (below(4) > 0) return Json::parse(kValues[below(std::size(kValues))]);
    Json other = Json::parse(kKnown[below(std::size(kKnown))].body);
    return any(other);
  }
  void change(Json& body) {
    Json& at = any(body);
    const size_t how = below(4);
    if (how == 0 && at.is_object() && !at.empty()) {
      at.erase(std::next(at.begin(), long(below(at.size()))));
    } else if (how == 1 && at.is_object()) {
      const Json other = Json::parse(kKnown[below(std::size(kKnown))].body);
      const auto field = std::next(other.begin(), long(below(other.size())));
      at[field.key()] = below(2) > 0 ? field.value() : value();
    } else if (how == 2 && at.is_array()) {
      at.push_back(value());
    } else {
      at = value();
    }
  }
  void keep_short(Json& body) {
    if (!body.is_object() || below(2000) == 0) return;
    for (const char* name : {"max_tokens", "max_completion_tokens"}) {
      Json& most = body[name];
      if (most.is_null() || (most.is_number_integer() && most > 3)) most = 1 + below(3);
    }
    if (body.contains("n") && body["n"].is_number_integer() && body["n"] > 4) body["n"] = 4;
  }
  void spoil(std::string& text) {
    const size_t at = below(text.size() + 1);
    if (below(2) > 0) {
      text.insert(at, 1, char(below(256)));
    } else {
      text.erase(at, 1 + below(4));
    }
  }

  std::mt19937_64 random_;
};

TEST(ApiRequests, AreAllAnswered) {
  const char* wanted = std::getenv("HORNER_API_REQUESTS");
  const int64_t count = wanted ? std::atoll(wanted) : 10000;
  ServeMetrics metrics;
  ServedModel model = small_model(metrics);
  Api api(metrics);
  api.ready(model);
  Requests requests{uint64_t(count)};
  std::map<int, int64_t> statuses;
  for (int64_t i = 0; i < count; ++i) {
    const ApiRequest request = requests.next();
    ApiReply reply = api.answer(request);
    if (reply.stream) {
      size_t lines = 1 + requests.below(50);
      reply.stream([&](const std::string& line) {
        EXPECT_TRUE(is_utf8(line));
        return --lines > 0;
      });
    }
    ++statuses[reply.status];
    const std::string asked = request.method + " " + request.path + " " + request.body;
    ASSERT_TRUE(reply.status < 500) << reply.status << " " << reply.body << "\n" << asked;
    ASSERT_TRUE(is_utf8(reply.body) || reply.type == "application/octet-stream") << asked;
    if (reply.status < 400 || reply.status == 499) continue;
    const Json error = Json::parse(reply.body).at("error");
    ASSERT_TRUE(error.at("message").is_string() && !error.at("message").empty()) << asked;
  }
  for (const auto& [status, answers] : statuses)
    RecordProperty(fmt::format("status {}", status), fmt::format("{}", answers));
  EXPECT_GT(statuses[200], count / 20);  // most of the changed ones are still understood
  EXPECT_GT(statuses[400], count / 20);
}

// Found by ten million random requests: there was no first token to echo, and the server ended.
TEST(ApiRequests, AnEmptyPromptAfterAStateIsNotEchoed) {
  ServeMetrics metrics;
  ServedModel model = small_model(metrics);
  Api api(metrics);
  api.ready(model);
  const auto ask = [&](const char* path, const char* body) {
    ApiRequest request{"POST", path, body, "application/json", [] { return true; }};
    return api.answer(request);
  };
  EXPECT_EQ(ask("/states", R"({"name": "s", "prompt": "abc"})").status, 200);
  const char* empty =
      R"({"state": "s", "prompt": "", "echo": true, "logprobs": 1, "max_tokens": 1})";
  const ApiReply reply = ask("/v1/completions", empty);
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("echo with logprobs"), std::string::npos) << reply.body;
  EXPECT_EQ(
      ask("/v1/completions", R"({"state": "s", "prompt": "", "echo": true, "max_tokens": 1})")
          .status,
      200
  );
}

}  // namespace
}  // namespace horner
