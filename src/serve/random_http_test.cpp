// Bytes from outside: whatever a client sends, it gets whole answers or the end of the connection, and the server goes on.
//
// Requests that are right are changed at random: bytes go, come or change, lines come twice, lengths lie. Several go over one
// connection. HORNER_HTTP_REQUESTS says how many; the same number gives the same requests.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <map>
#include <random>

#include "core/check.h"
#include "serve/http.h"

namespace horner {
namespace {

const std::string kKnown[] = {
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /chat.css HTTP/1.1\r\nHost: 127.0.0.1:80\r\nRange: bytes=0-5\r\nAccept: */*\r\n\r\n",
    "HEAD /health HTTP/1.0\r\n\r\n",
    "DELETE /states/a HTTP/1.1\r\nHost: [::1]\r\nAuthorization: Bearer x\r\n\r\n",
    "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: 15\r\n\r\n{\"prompt\": \"a\"}",
    "POST /v1/completions?a=%20b&c HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; "
    "charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"prompt\r\n7\r\n\": "
    "\"a\"}\r\n0\r\n\r\n",
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Expect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    "Content-Length: 9\r\n\r\n--x--\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
};
const std::string kPieces[] = {
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    std::string(1, '\0'),
    "\xff",
    "%",
    "%00",
    "%zz",
    "../",
    "//",
    "?",
    "#",
    "HTTP/1.1",
    "HTTP/9.9",
    "Content-Length: 3\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Content-Length: -1\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Content-Encoding: gzip\r\n",
    "Connection: keep-alive\r\n",
    "Connection: close\r\n",
    "Range: bytes=5-1,-,0-\r\n",
    "Host: evil.example\r\n",
    "ffffffffffffffff\r\n",
    "0\r\n\r\n",
    "-5\r\n",
    "GET ",
    "POST ",
};

class Bytes {
 public:
  explicit Bytes(uint64_t seed) : random_(seed) {}
  size_t below(size_t n) { return size_t(random_() % n); }

  std::string next() {
    std::string request = kKnown[below(std::size(kKnown))];
    for (size_t changes = below(5); changes > 0; --changes) change(request);
    return request;
  }

 private:
  void change(std::string& text) {
    const size_t at = below(text.size() + 1), how = below(8);
    if (how < 4) {
      text.insert(at, kPieces[below(std::size(kPieces))]);
    } else if (how == 4) {
      text.erase(at, 1 + below(6));
    } else if (how == 5 && at < text.size()) {
      text[at] = char(below(256));
    } else if (how == 6) {  // something twice
      text.insert(at, text.substr(below(text.size() + 1), 1 + below(40)));
    } else if (below(50) == 0) {
      text.insert(at, below(100'000), char('a' + below(26)));
    }
  }
  std::mt19937_64 random_;
};

// What comes back before the server closes; nothing if it does not.
std::optional<std::string> answers_to(int port, const std::string& bytes) {
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval most{30, 0};
  ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  if (::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    ::close(client);
    return {};
  }
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t now = ::send(client, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) break;  // the server has answered and closed
    sent += size_t(now);
  }
  ::shutdown(client, SHUT_WR);
  std::string found;
  char buffer[65536];
  ssize_t got = 0;
  while ((got = ::recv(client, buffer, sizeof buffer, 0)) > 0) found.append(buffer, size_t(got));
  const bool closed = got == 0 || errno == ECONNRESET;
  ::close(client);
  if (!closed) return {};
  return found;
}

// Statuses of answers one after the other; nothing if one of them is not whole. Answers to HEAD have no body, and nobody can tell
// them from outside: so a body may be left out.
std::optional<std::vector<int>> statuses_of(std::string_view text) {
  std::vector<int> statuses;
  while (!text.empty()) {
    const size_t head = text.find("\r\n\r\n");
    if (!text.starts_with("HTTP/1.1 ") || head == text.npos) return {};
    int status = 0;
    std::from_chars(text.data() + 9, text.data() + 12, status);
    statuses.push_back(status);
    const std::string_view headers = text.substr(0, head + 2);
    text.remove_prefix(head + 4);
    const std::string_view name = "\r\nContent-Length: ";
    const size_t at = headers.find(name);
    if (at == headers.npos) continue;
    size_t length = 0;
    std::from_chars(headers.data() + at + name.size(), headers.data() + headers.size(), length);
    if (text.empty() || text.starts_with("HTTP/1.1 ")) continue;
    if (length > text.size()) return {};
    text.remove_prefix(length);
  }
  return statuses;
}

TEST(HttpRequests, AreAllAnsweredOrEnded) {
  const char* wanted = std::getenv("HORNER_HTTP_REQUESTS");
  const int64_t count = wanted ? std::atoll(wanted) : 3000;
  ServeMetrics metrics;
  Api api(metrics);  // without a model: its answers are 503 at most
  HttpOptions o;
  o.port = 0;
  o.body = 1;
  const auto server = open_http_server(api, o);
  Bytes bytes{uint64_t(count)};
  std::map<int, int64_t> statuses;
  for (int64_t i = 0; i < count;) {
    std::string sent;
    for (size_t more = 1 + bytes.below(3); more > 0; --more, ++i) sent += bytes.next();
    const auto found = answers_to(server->port(), sent);
    ASSERT_TRUE(found) << "no end after:\n" << sent;
    const auto each = statuses_of(*found);
    ASSERT_TRUE(each) << "not whole:\n" << *found << "\nafter:\n" << sent;
    for (const int status : *each) {
      const bool known =
          status == 100 || status == 200 || (status >= 400 && status <= 431) || status == 503;
      ASSERT_TRUE(known) << status << " after:\n" << sent;
      ++statuses[status];
    }
  }
  for (const auto& [status, answers] : statuses)
    RecordProperty(fmt::format("status {}", status), fmt::format("{}", answers));
  for (const int status : {200, 400, 404, 503}) EXPECT_GT(statuses[status], count / 100) << status;
}

}  // namespace
}  // namespace horner
