// Progress of a long command on stderr: one line that moves on a terminal, plain lines in a pipe.
#pragma once

#include <chrono>
#include <string>

namespace horner {

class Progress {
 public:
  explicit Progress(size_t total);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `part` names the larger piece of work (a pipe gets a line when it changes), `what` the present one.
  void at(size_t done, const std::string& part, const std::string& what);

 private:
  size_t total_;
  bool terminal_;
  std::string part_;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace horner
