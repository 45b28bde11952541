#include "train/server.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace horner {
namespace {

bool listens(const addrinfo& address) {
  const int kind = address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC;
  const int fd = ::socket(address.ai_family, kind, address.ai_protocol);
  if (fd < 0) return false;
  ::connect(fd, address.ai_addr, address.ai_addrlen);  // its outcome comes with the poll
  pollfd ready{fd, POLLOUT, 0};
  int error = 1;
  socklen_t size = sizeof error;
  const bool found = ::poll(&ready, 1, 1000) == 1 &&
                     ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  ::close(fd);
  return found;
}

}  // namespace

bool server_listens(const std::string& host, uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &first) != 0) return false;
  bool found = false;
  for (const addrinfo* a = first; a != nullptr && !found; a = a->ai_next) found = listens(*a);
  ::freeaddrinfo(first);
  return found;
}

}  // namespace horner
