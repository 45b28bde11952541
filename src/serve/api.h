// The server's answers, without HTTP: a method, a path and a body become a status and a body, or a stream of events.
#pragma once

#include <atomic>
#include <functional>

#include "serve/api_error.h"
#include "serve/served_model.h"

namespace horner {

struct ApiRequest {
  std::string method, path, body, content_type;
  std::function<bool()> alive;  // whether the client still waits
};

struct ApiReply {
  int status = 200;
  std::string type = "application/json", body;
  std::vector<std::pair<std::string, std::string>> headers;
  // Not empty: the body is what it writes, a piece at a time; write() is false once the client has left.
  using Write = std::function<bool(const std::string&)>;
  std::function<void(const Write&)> stream;
};

class Api {
 public:
  explicit Api(ServeMetrics& metrics) : metrics_(metrics) {}
  void ready(ServedModel& model) { model_ = &model; }

  // Never throws: a mistake is a reply, too.
  ApiReply answer(const ApiRequest& request);
  static ApiReply error_reply(const ApiError& error);

 private:
  ApiReply route(const ApiRequest& request);
  ServedModel& model() const;  // ApiError 503 while it is read
  Json body_of(const ApiRequest& request) const;
  // Hands the body to `use`. Large ones wait for each other, so that they do not take the memory together.
  void read_body(const ApiRequest& request, const std::function<void(const Json&)>& use) const;

  ApiReply texts(const ApiRequest& request, bool chat);
  Json models() const;
  Json embeddings(const Json& body) const;
  Json tokenize(const Json& body) const;
  Json detokenize(const Json& body) const;
  Json apply_template(const Json& body) const;
  Json tokenizer_info() const;
  ApiReply states(const ApiRequest& request);
  Json save_state(const ApiRequest& request);

  ServeMetrics& metrics_;
  std::atomic<ServedModel*> model_ = nullptr;
};

}  // namespace horner
