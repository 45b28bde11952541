#include "serve/http.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <set>
#include <thread>

#include "core/check.h"
#include "serve/http_connection.h"

namespace horner {
namespace {

thread_local Connection* connection = nullptr;  // of this thread
thread_local bool refusing = false;             // too many clients: this one gets a line

// In the same time wherever they differ.
bool same_key(const std::string& given, const std::string& key) {
  unsigned difference = given.size() != key.size();
  for (size_t i = 0; i < key.size(); ++i)
    difference |= unsigned(uint8_t(i < given.size() ? given[i] : 0) ^ uint8_t(key[i]));
  return difference == 0;
}

// "[::1]:8080" -> "::1", "LocalHost." -> "localhost"
std::string host_name(const std::string& header) {
  if (header.starts_with('[')) return header.substr(1, header.find(']') - 1);
  std::string name = header.substr(0, header.find(':'));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? char(c + 'a' - 'A') : c;
  if (name.ends_with('.')) name.pop_back();
  return name;
}

bool is_address(const std::string& host) {
  in_addr v4;
  in6_addr v6;
  return ::inet_pton(AF_INET, host.c_str(), &v4) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

// 127.evil.example is the name of another machine.
bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_address(host));
}

// Where a request ends is said once and plainly. Else a proxy before this server may see its end elsewhere, and what one client
// sends would become the beginning of another's request.
std::optional<ApiError> framing_mistake(const httplib::Request& request) {
  const auto wrong = [](const std::string& what) {
    return ApiError(400, "bad_request", "{}", what);
  };
  for (const auto& [name, value] : request.headers) {
    const auto odd = [](char c) { return uint8_t(c) <= ' ' || c == 127; };
    if (std::any_of(name.begin(), name.end(), odd)) return wrong("a header's name has a space");
  }
  for (const char* name : {"Host", "Content-Length", "Transfer-Encoding"}) {
    if (request.get_header_value_count(name) > 1)
      return wrong(fmt::format("there are several headers {}", name));
  }
  const bool sized = request.has_header("Content-Length");
  const bool chunked = request.has_header("Transfer-Encoding");
  const std::string size = request.get_header_value("Content-Length");
  if (sized && (size.empty() || size.find_first_not_of("0123456789") != size.npos))
    return wrong("Content-Length must be a number");
  if (chunked && request.get_header_value("Transfer-Encoding") != "chunked")
    return wrong("of Transfer-Encoding only chunked is read");
  if (sized && chunked) return wrong("the body has Content-Length and Transfer-Encoding");
  if (request.method == "POST") {
    if (!sized && !chunked) return wrong("the body's length is missing: send Content-Length");
  } else if (chunked || size.find_first_not_of('0') != size.npos) {
    return wrong(fmt::format("a {} has no body here", request.method));
  }
  return {};
}

// A thread for each client.
class Threads {
 public:
  explicit Threads(int64_t most) : most_(most) {}
  void run(const std::function<void()>& serve) {
    {
      const std::lock_guard lock(mutex_);
      refusing = running_ >= most_;
      running_ += !refusing;
    }
    if (refusing) return serve();
    try {
      std::thread([this, serve] {
        serve();
        left();
      }).detach();
    } catch (const std::system_error&) {  // the machine has no thread left
      left();
      refusing = true;
      serve();
    }
  }
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  void left() {
    const std::lock_guard lock(mutex_);
    --running_;
    done_.notify_all();
  }

  const int64_t most_;
  int64_t running_ = 0;
  std::mutex mutex_;
  std::condition_variable done_;
};

void put(httplib::Response& to, ApiReply from) {
  to.status = from.status;
  for (const auto& [name, value] : from.headers) to.set_header(name, value);
  if (!from.stream) return to.set_content(std::move(from.body), from.type);
  const auto write_all = [stream = std::move(from.stream)](size_t, httplib::DataSink& sink) {
    stream([&](const std::string& text) { return sink.write(text.data(), text.size()); });
    sink.done();
    return true;
  };
  to.set_chunked_content_provider(from.type, write_all);
}

class Server : public httplib::Server {
 public:
  Server(Api& api, const HttpOptions& o) : api_(api), o_(o) {
    limits_.body = size_t(o.body) << 20;
    limits_.request = std::chrono::seconds(o.request_seconds);
    limits_.write = std::chrono::seconds(o.write_seconds);
    set_payload_max_length(limits_.body);
    set_socket_options([](int socket) {  // the library's own would let two servers share a port
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_default_headers({{"X-Content-Type-Options", "nosniff"}});
    set_keep_alive_timeout(limits_.idle.count());  // what clients are told
    set_keep_alive_max_count(1 << 20);
    set_pre_routing_handler([this](const auto& request, auto& response) {
      return admits(request, response) ? HandlerResponse::Unhandled : HandlerResponse::Handled;
    });
    const auto plain = [this](const httplib::Request& request, httplib::Response& response) {
      put(response, answer(request, ""));
    };
    Get(".*", plain);
    Delete(".*", plain);
    Post(".*", [this](const auto& request, auto& response, const auto& read) {
      std::string body;
      const bool whole = read([&](const char* bytes, size_t count) {
        if (body.size() + count > limits_.body) return false;
        body.append(bytes, count);
        return true;
      });
      if (whole) return put(response, answer(request, std::move(body)));
      connection->close_after_answer();
      if (response.status != 413) response.status = 400;
    });
    set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
      describe(request, response);
    });
  }

  void start() {
    const bool bound =
        o_.port > 0 ? bind_to_port(o_.host, int(o_.port)) : (port_ = bind_to_any_port(o_.host)) > 0;
    if (!bound) throw RunError("cannot listen on {}:{}: {}", o_.host, o_.port, why_not_bound());
    if (o_.port > 0) port_ = int(o_.port);
    ::listen(svr_sock_, 512);  // a longer queue than the library's
    listener_ = std::thread([this] { take_clients(); });
  }
  // The library does not say whether the name or the port was refused, and errno is set only by the port.
  std::string why_not_bound() const {
    const int problem = errno;
    addrinfo* found = nullptr;
    const int unknown = ::getaddrinfo(o_.host.c_str(), nullptr, nullptr, &found);
    if (unknown != 0) return ::gai_strerror(unknown);
    ::freeaddrinfo(found);
    return std::strerror(problem);
  }
  void stop_listening() {
    if (!stopping_.exchange(true)) ::shutdown(svr_sock_, SHUT_RDWR);  // wakes take_clients
  }
  void close_all() {
    {
      const std::lock_guard lock(mutex_);
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RD);
    }
    if (!listener_.joinable()) return;
    listener_.join();
    ::close(svr_sock_);
  }
  int port() const { return port_; }
  bool loopback() const { return is_loopback(o_.host); }

 private:
  // Instead of the library's loop and its stop(): that loop ends for good at the first error, and after stop() an answer whose
  // stream has not begun is left out.
  void take_clients() {
    Threads clients(o_.connections);
    while (!stopping_) {
      const int socket = ::accept4(svr_sock_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket >= 0) {
        clients.run([this, socket] { process_and_close_socket(socket); });
      } else if (!stopping_) {  // no descriptor or no memory now, or this client has left
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    clients.wait_for_all();
  }

  bool process_and_close_socket(int socket) override {
    if (refusing) {
      static const std::string body =
          Api::error_reply({503, "too_many_connections", "too many connections"}).body;
      static const std::string line = fmt::format(
          "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
          "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
          body.size(),
          body
      );
      ::send(socket, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      ::shutdown(socket, SHUT_WR);
      return ::close(socket), true;
    }
    const int yes = 1, kept = 64 << 10;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kept, sizeof kept);  // slow readers are seen early
    {
      const std::lock_guard lock(mutex_);
      sockets_.insert(socket);
    }
    Connection own(socket, limits_);
    connection = &own;
    // A part of an answer would be sent as if it were all of it, and a page as often as ranges are asked for.
    const auto whole = [](httplib::Request& request) { request.ranges.clear(); };
    try {
      while (!stopping_ && own.wait_for_request()) {
        bool closed = false;
        if (!process_request(own, false, closed, whole) || closed) break;
      }
    } catch (const std::exception&) {
      // An answer failed on its way, without memory for instance. Its client sees the end; the others go on.
    }
    {
      const std::lock_guard lock(mutex_);
      sockets_.erase(socket);
    }
    own.finish();
    return true;
  }

  ApiReply answer(const httplib::Request& request, std::string body) {
    ApiRequest asked;
    asked.method = request.method == "HEAD" ? "GET" : request.method;
    asked.path = request.path;
    asked.body = std::move(body);
    asked.content_type = request.get_header_value("Content-Type");
    asked.alive = [own = connection] { return own->client_waits(); };
    return api_.answer(asked);
  }

  // Before the body is read: who asks, and whether the body is one that is read here.
  bool admits(const httplib::Request& request, httplib::Response& response) {
    const auto refuse = [&](ApiError error) {
      connection->close_after_answer();
      response.set_header("Connection", "close");
      put(response, Api::error_reply(error));
      return false;
    };
    if (const auto mistake = framing_mistake(request)) return refuse(*mistake);
    const std::string host = host_name(request.get_header_value("Host"));
    if (loopback() && !host.empty() && !is_loopback(host) && !is_address(host))
      return refuse({400, "invalid_host", "this server is not '{}'", host.substr(0, 100)});
    const bool open = request.path == "/health" || request.path == "/" ||
                      request.path == "/chat.js" || request.path == "/chat.css";
    const std::string given = request.get_header_value("Authorization");
    if (!o_.api_key.empty() && !open &&
        !(given.starts_with("Bearer ") && same_key(given.substr(7), o_.api_key)))
      return refuse({401, "invalid_api_key", "send the key as: Authorization: Bearer KEY"});
    if (request.method != "POST") return true;
    const std::string type = request.get_header_value("Content-Type");
    if (!type.starts_with("application/json"))
      return refuse(
          {400,
           "invalid_content_type",
           "send JSON with the header Content-Type: application/json, not '{}'",
           type.substr(0, 100)}
      );
    if (request.has_header("Content-Encoding"))
      return refuse({400, "unsupported", "the body must not be compressed"});
    return true;
  }

  // A body for what the library refused by itself.
  void describe(const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    const int status = response.status;
    if (status != 404) connection->close_after_answer();
    ApiError error =
        status == 413 ? ApiError(413, "too_large", "the body has more than {} MiB", o_.body)
        : status == 404
            ? ApiError(404, "not_found", "there is no {} {}", request.method, request.path)
            : ApiError(status, "bad_request", "this is no request that can be read");
    put(response, Api::error_reply(error));
  }

  Api& api_;
  const HttpOptions o_;
  ConnectionLimits limits_;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::set<int> sockets_;
  std::thread listener_;
};

struct OpenServer : HttpServer {
  OpenServer(Api& api, const HttpOptions& o) : server(api, o) { server.start(); }
  ~OpenServer() override {
    server.stop_listening();
    server.close_all();
  }
  int port() const override { return server.port(); }
  bool loopback() const override { return server.loopback(); }
  void stop_listening() override { server.stop_listening(); }
  Server server;
};

}  // namespace
}  // namespace horner

extern "C" horner::HttpServer* horner_make_http_server(
    horner::Api& api, const horner::HttpOptions& options
) {
  return new horner::OpenServer(api, options);
}
