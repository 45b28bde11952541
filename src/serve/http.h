// HTTP around the API: connections, limits, keys.
//
// It is in a library of its own, since it needs cpp-httplib and OpenSSL: the other commands run without these.
#pragma once

#include <memory>
#include <string>

#include "serve/api.h"

namespace horner {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8080;
  std::string api_key;
  int64_t body = 8;  // MiB
  int64_t connections = 256;
  int64_t request_seconds = 30, write_seconds = 20;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("host", host, "address to listen on; 127.0.0.1: only this machine");
    visit("port", port, "0: any that is free");
    visit("api_key", api_key, "clients must send it; or the variable HORNER_API_KEY");
    visit("body", body, "most MiB of a request");
    visit("connections", connections, "clients at a time; more are refused (503)");
    visit("request_seconds", request_seconds, "in which a request must have arrived");
    visit("write_seconds", write_seconds, "that a client may take nothing of its answer");
  }
};

class HttpServer {
 public:
  HttpServer() = default;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  virtual ~HttpServer() = default;  // closes every connection

  virtual int port() const = 0;
  virtual bool loopback() const = 0;  // nobody outside this machine can reach it
  virtual void stop_listening() = 0;  // answers that are on their way go on
};

// Opens libhorner_http.so. RunError if that fails, or if the server cannot listen.
std::unique_ptr<HttpServer> open_http_server(Api& api, const HttpOptions& options);

// What libhorner_http.so has under the name horner_make_http_server.
using MakeHttpServer = HttpServer*(Api& api, const HttpOptions& options);

}  // namespace horner
