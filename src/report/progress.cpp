#include "report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "report/terminal.h"

namespace horner {

void show_status(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void show_line(const std::string& line) {
  const size_t width = terminal_width(STDERR_FILENO);
  show_status("\r\033[K" + clipped(line, width > 1 ? width - 1 : 0));
}

Progress::Progress(size_t total, std::string unit)
    : total_(total),
      unit_(std::move(unit)),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (terminal_) show_status("\r\033[K");
}

void Progress::at(size_t done, const std::string& part, const std::string& what) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string amount =
      total_ == 0 ? "" : fmt::format("{} of {} {} done, ", done, total_, unit_);
  if (!terminal_) {
    if (part != part_) show_status(fmt::format("{}: {}{:.0f} s\n", part, amount, seconds));
    part_ = part;
    return;
  }
  if (now - drawn_ < std::chrono::milliseconds(50)) return;
  drawn_ = now;
  if (total_ == 0) return show_line(fmt::format("{:.0f} s  {}: {}", seconds, part, what));
  const size_t bars = 20 * done / total_;
  const double left =
      done == 0 || done > total_ ? 0 : seconds / double(done) * double(total_ - done);
  show_line(fmt::format(
      "[{:#<{}}{:.<{}}] {}{:.0f} s, {:.0f} s left  {}: {}",
      "",
      bars,
      "",
      20 - bars,
      amount,
      seconds,
      left,
      part,
      what
  ));
}

}  // namespace horner
