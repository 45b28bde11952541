#include "serve/api.h"

#include <malloc.h>

#include <semaphore>

#include "core/version.h"
#include "serve/page.h"
#include "serve/text_answer.h"

namespace horner {
namespace {

// A large body takes some 100 times its bytes while it is read, so few are read at a time.
constexpr size_t kLargeBody = 256 << 10;
std::counting_semaphore<> large_bodies(2);

class OneOfFew {
 public:
  explicit OneOfFew(bool counts) : counts_(counts) {
    if (counts_) large_bodies.acquire();
  }
  OneOfFew(const OneOfFew&) = delete;
  OneOfFew& operator=(const OneOfFew&) = delete;
  ~OneOfFew() {
    if (!counts_) return;
    ::malloc_trim(0);  // else each thread's heap keeps what its bodies took
    large_bodies.release();
  }

 private:
  const bool counts_;
};

ApiReply json_reply(const Json& json) {
  ApiReply reply;
  reply.body = to_line(json);
  return reply;
}

const std::string& text_field(const Json& body, const char* a, const char* b) {
  for (const char* name : {a, b}) {
    if (const Json* value = RequestFields(body).find(name)) {
      if (!value->is_string()) RequestFields::wrong(name, "a text", *value);
      return value->get_ref<const std::string&>();
    }
  }
  throw ApiError(400, "invalid_value", "{} is missing", a);
}

std::string base64(const std::vector<float>& numbers) {
  static const char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = reinterpret_cast<const uint8_t*>(numbers.data());
  const size_t size = numbers.size() * sizeof(float);
  std::string text;
  for (size_t i = 0; i < size; i += 3) {
    const size_t count = std::min<size_t>(3, size - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) bits = bits << 8 | (j < count ? bytes[i + j] : 0);
    for (size_t d = 0; d < 4; ++d) text += d <= count ? kDigits[bits >> (18 - 6 * d) & 63] : '=';
  }
  return text;
}

}  // namespace

ServedModel& Api::model() const {
  ServedModel* model = model_;
  if (!model) throw ApiError(503, "loading", "the model is being read; try again in a moment");
  return *model;
}

Json Api::body_of(const ApiRequest& request) const {
  if (!request.content_type.starts_with("application/json"))
    throw ApiError(
        400,
        "invalid_content_type",
        "send JSON with the header Content-Type: application/json, not '{}'",
        request.content_type.substr(0, 100)
    );
  Json body;
  try {
    body = parse_json(request.body, "the body");
  } catch (const Error& error) {
    throw ApiError(400, "invalid_json", "{}", error.what());
  }
  if (!body.is_object()) throw ApiError(400, "invalid_json", "the body must be a JSON object");
  return body;
}

void Api::read_body(const ApiRequest& request, const std::function<void(const Json&)>& use) const {
  const OneOfFew turn(request.body.size() > kLargeBody);
  use(body_of(request));
}

ApiReply Api::error_reply(const ApiError& error) {
  ApiReply reply = json_reply(error.json());
  reply.status = error.status;
  if (error.status == 429 || error.status == 503) reply.headers = {{"Retry-After", "1"}};
  return reply;
}

ApiReply Api::answer(const ApiRequest& request) {
  ApiReply reply;
  try {
    reply = route(request);
  } catch (const ApiError& error) {
    reply = error_reply(error);
  } catch (const std::bad_alloc&) {
    reply = error_reply({503, "out_of_memory", "the server has no memory left"});
  } catch (const UsageError& error) {
    reply = error_reply({400, "invalid_value", "{}", error.what()});
  } catch (const std::exception& error) {
    reply = error_reply({500, "internal_error", "{}", error.what()});
  }
  metrics_.answered(reply.status);
  return reply;
}

ApiReply Api::route(const ApiRequest& request) {
  const auto is = [&](const char* method, const char* path) {
    return request.method == method && request.path == path;
  };
  if (is("GET", "/health")) return model(), json_reply({{"status", "ok"}});
  if (is("GET", "/metrics")) {
    ApiReply reply;
    reply.type = "text/plain; version=0.0.4";
    reply.body = metrics_.page();
    return reply;
  }
  if (request.method == "GET") {
    if (std::optional<ApiReply> page = page_reply(request.path)) return *page;
  }
  if (is("GET", "/v1/models")) return json_reply(models());
  if (is("GET", "/tokenizer_info")) return json_reply(tokenizer_info());
  if (is("POST", "/v1/completions")) return texts(request, false);
  if (is("POST", "/v1/chat/completions")) return texts(request, true);
  const auto reply_to = [&](Json (Api::*method)(const Json&) const) {
    ApiReply reply;
    read_body(request, [&](const Json& body) { reply = json_reply((this->*method)(body)); });
    return reply;
  };
  if (is("POST", "/v1/embeddings")) return reply_to(&Api::embeddings);
  if (is("POST", "/tokenize")) return reply_to(&Api::tokenize);
  if (is("POST", "/detokenize")) return reply_to(&Api::detokenize);
  if (is("POST", "/apply-template")) return reply_to(&Api::apply_template);
  if (request.path == "/states" || request.path.starts_with("/states/")) return states(request);
  throw ApiError(404, "not_found", "there is no {} {}", request.method, request.path);
}

Json Api::models() const {
  const ServedModel& m = model();
  const ServeMetrics::Now now = metrics_.now();
  const Json one = {
      {"id", m.name},
      {"object", "model"},
      {"created", m.created},
      {"owned_by", "horner"},
      {"max_model_len", m.longest_prompt},
      {"computed_by", m.computed_by},
      {"chat", m.chat.has_value()},
      {"version", version()},
      {"tokens_per_second", metrics_.tokens_per_second()},
      {"cache_bytes", now.cache_bytes}};
  return {{"object", "list"}, {"data", Json::array({one})}};
}

Json Api::embeddings(const Json& body) const {
  ServedModel& m = model();
  const RequestFields fields(body);
  check_model(m, fields);
  if (!m.embedder)
    throw ApiError(400, "unsupported", "{} writes text; only encoders give vectors", m.name);
  fields.refuse("dimensions", "vectors have the width of the model");
  const Json* input = fields.find("input");
  if (!input) throw ApiError(400, "invalid_value", "input is missing");
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    RequestFields::wrong("encoding_format", "float or base64", format);
  const auto texts =
      read_prompts("input", *input, m.embedder->vocabulary(), [&](const std::string& text) {
        return m.embedder->tokens(text);
      });
  if (texts.size() > 2048) throw ApiError(400, "invalid_value", "input has more than 2048 texts");
  int64_t tokens = 0;
  for (const auto& text : texts) {
    if (text.empty() || int64_t(text.size()) > m.embedder->longest())
      throw ApiError(
          400,
          "context_length_exceeded",
          "a text has {} tokens; it must have 1 to {}",
          text.size(),
          m.embedder->longest()
      );
    tokens += int64_t(text.size());
  }
  const auto vectors = m.embedder->vectors(texts);
  Json data = Json::array();
  for (size_t i = 0; i < vectors.size(); ++i) {
    Json one = {{"object", "embedding"}, {"index", i}};
    one["embedding"] = format == "float" ? Json(vectors[i]) : Json(base64(vectors[i]));
    data.push_back(std::move(one));
  }
  return {
      {"object", "list"},
      {"data", std::move(data)},
      {"model", m.name},
      {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

Json Api::tokenize(const Json& body) const {
  const ServedModel& m = model();
  const RequestFields fields(body);
  std::vector<int32_t> tokens;
  if (fields.find("messages")) {
    tokens = chat_prompt(m, body, read_answer_form(body, m.chat_source), nullptr);
  } else {
    const std::string& text = text_field(body, "prompt", "content");
    const bool around = fields.find("add_special_tokens") ? fields.flag("add_special_tokens")
                        : fields.find("add_special")      ? fields.flag("add_special")
                                                          : fields.find("prompt") != nullptr;
    tokens = m.tokenizer.encode(text, {.surround = around});
  }
  return {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", m.longest_prompt}};
}

Json Api::detokenize(const Json& body) const {
  const ServedModel& m = model();
  const Json* tokens = RequestFields(body).find("tokens");
  if (!tokens || !tokens->is_array())
    throw ApiError(400, "invalid_value", "tokens must be a list of token ids");
  const auto ids = read_ids("tokens", *tokens, m.tokenizer.vocabulary());
  const std::string text = as_utf8(m.tokenizer.decode(ids, true));
  return {{"prompt", text}, {"content", text}};
}

Json Api::apply_template(const Json& body) const {
  const AnswerForm form = read_answer_form(body, model().chat_source);
  const Json messages = read_messages(body, form);
  const bool add =
      !body.contains("add_generation_prompt") || RequestFields(body).flag("add_generation_prompt");
  return {{"prompt", as_utf8(chat_text(model(), messages, add, body, form).bytes)}};
}

Json Api::tokenizer_info() const {
  const ServedModel& m = model();
  const auto token = [&](std::optional<int32_t> id) {
    return id ? Json(as_utf8(m.tokenizer.token(*id))) : Json(nullptr);
  };
  return {
      {"tokenizer_class", m.tokenizer.kind()},
      {"vocab_size", m.tokenizer.vocabulary()},
      {"bos_token", token(m.tokenizer.begin())},
      {"eos_token", token(m.tokenizer.end())},
      {"pad_token", token(m.tokenizer.end())},
      {"chat_template", m.chat_source.empty() ? Json(nullptr) : Json(m.chat_source)},
      {"model_max_length", m.longest_prompt}};
}

}  // namespace horner
