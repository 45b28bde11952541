#include "serve/http_connection.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace horner {
namespace {

// What happened on the socket; 0: nothing in this time.
short wait_for(int socket, short events, std::chrono::steady_clock::time_point until) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now()
    );
    pollfd fd{socket, events, 0};
    const int found = ::poll(&fd, 1, int(std::clamp<int64_t>(left.count() + 1, 0, 60000)));
    if (found > 0) return fd.revents;
    if (found < 0 && errno != EINTR) return POLLERR;
    if (std::chrono::steady_clock::now() >= until) return 0;
  }
}

}  // namespace

bool Connection::fill(Clock::time_point until) {
  if (!(wait_for(socket_, POLLIN, until) & POLLIN)) return false;
  const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  begin_ = 0;
  end_ = size_t(std::max<ssize_t>(got, 0));
  return got > 0;
}

bool Connection::wait_for_request() {
  if (closes_) return false;
  if (begin_ == end_ && !fill(Clock::now() + limits_.idle)) return false;
  until_ = Clock::now() + limits_.request;
  header_bytes_ = body_bytes_ = 0;
  line_ends_ = 0;
  return true;
}

bool Connection::client_waits() const {
  pollfd fd{socket_, POLLRDHUP, 0};
  return ::poll(&fd, 1, 0) == 0;
}

// Counts what is handed to the parser. False: too much.
bool Connection::count(const char* from, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (line_ends_ == 2) {
      body_bytes_ += size - i;
      break;
    }
    ++header_bytes_;
    if (from[i] == '\n') {
      ++line_ends_;
    } else if (from[i] != '\r') {
      line_ends_ = 0;
    }
  }
  return header_bytes_ <= limits_.headers && body_bytes_ <= limits_.body;
}

ssize_t Connection::read(char* to, size_t size) {
  if (Clock::now() > until_) return -1;
  if (begin_ == end_ && !fill(until_)) return -1;
  const size_t count_now = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, count_now);
  begin_ += count_now;
  if (count(to, count_now)) return ssize_t(count_now);
  closes_ = true;
  return -1;
}

ssize_t Connection::write(const char* from, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    const ssize_t now = ::send(socket_, from + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now > 0) {
      sent += size_t(now);
      continue;
    }
    const bool full = now < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    const short found = full ? wait_for(socket_, POLLOUT, Clock::now() + limits_.write) : POLLERR;
    if (!(found & POLLOUT) || (found & (POLLERR | POLLHUP))) {
      closes_ = true;
      return -1;
    }
  }
  return ssize_t(sent);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    port = ntohs(v6.sin6_port);
  }
  ip = text;
}

void Connection::finish() {
  ::shutdown(socket_, SHUT_WR);
  const auto until = Clock::now() + std::chrono::seconds(1);
  size_t most = 64 << 20;
  while (most > buffer_.size() && fill(until)) most -= end_;
  ::close(socket_);
}

}  // namespace horner
