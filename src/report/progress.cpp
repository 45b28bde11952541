#include "report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace horner {

Progress::Progress(size_t total)
    : total_(total),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void Progress::at(size_t done, const std::string& part, const std::string& what) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (!terminal_) {
    if (part != part_)
      fmt::print(stderr, "{}: {} of {} done, {:.0f} s\n", part, done, total_, seconds);
    part_ = part;
    return;
  }
  if (now - drawn_ < std::chrono::milliseconds(50)) return;
  drawn_ = now;
  const size_t bars = total_ == 0 ? 30 : 30 * done / total_;
  const double left = done == 0 ? 0 : seconds / double(done) * double(total_ - done);
  fmt::print(
      stderr,
      "\r\033[K[{:#<{}}{:.<{}}] {}/{} {:.0f} s, {:.0f} s left  {}: {}",
      "",
      bars,
      "",
      30 - bars,
      done,
      total_,
      seconds,
      left,
      part,
      what
  );
  std::fflush(stderr);
}

}  // namespace horner
