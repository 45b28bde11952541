// Progress of a long command on stderr: one line that moves on a terminal, plain lines in a pipe.
#pragma once

#include <chrono>
#include <string>

namespace horner {

// Writes to stderr. A closed or full stderr is not a reason to stop the work.
void show_status(const std::string& text);

// In the place of the last line of the terminal; what does not fit its width is left out.
void show_line(const std::string& line);

class Progress {
 public:
  Progress(size_t total, std::string unit);  // of what: "steps", "checks"
  ~Progress();                               // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `part` names the larger piece of work (a pipe gets a line when it changes), `what` the present one.
  void at(size_t done, const std::string& part, const std::string& what);

 private:
  size_t total_;
  std::string unit_;
  bool terminal_;
  std::string part_;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace horner
