// One connection of a client, with limits on what it may send and how long it may take.
//
//   headers   at most 64 KiB          a request     must have arrived after some seconds
//   body      at most so many bytes   the answer    the client must take some of it every few seconds
#pragma once

#include <httplib.h>

#include <array>
#include <chrono>

namespace horner {

struct ConnectionLimits {
  size_t headers = 64 << 10, body = 0;
  std::chrono::seconds idle{15}, request{30}, write{20};
};

class Connection : public httplib::Stream {
 public:
  Connection(int socket, const ConnectionLimits& limits) : socket_(socket), limits_(limits) {}

  bool wait_for_request();  // false: the client has nothing more to ask
  bool client_waits() const;
  void close_after_answer() { closes_ = true; }
  bool closes() const { return closes_; }
  // Closes. What the client still sends is read for a moment, since a reset would take the answer away from it.
  void finish();

  bool is_readable() const override { return true; }
  bool is_writable() const override { return client_waits(); }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string&, int&) const override {}
  int socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool fill(Clock::time_point until);  // false: nothing came, or the client has left
  bool count(const char* from, size_t size);

  const int socket_;
  const ConnectionLimits limits_;
  std::array<char, 16 << 10> buffer_;
  size_t begin_ = 0, end_ = 0;
  Clock::time_point until_;
  size_t header_bytes_ = 0, body_bytes_ = 0;
  int line_ends_ = 0;  // without a letter between them: two end the headers
  bool closes_ = false;
};

}  // namespace horner
