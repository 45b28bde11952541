#include "core/origin.h"

#include <fmt/format.h>

#include <ctime>

#include "core/version.h"

namespace horner {

std::string shell_line(const std::vector<std::string>& words) {
  std::string line = "./horner";
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_@%+=:,./-"
                                        ) == std::string::npos;
    std::string quoted;
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += plain ? " " + word : " '" + quoted + "'";
  }
  return line;
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format(
      "{:04}-{:02}-{:02} {:02}:{:02} UTC",
      parts.tm_year + 1900,
      parts.tm_mon + 1,
      parts.tm_mday,
      parts.tm_hour,
      parts.tm_min
  );
}

Origin origin(
    const std::vector<std::string>& words,
    const std::string& seeds,
    const std::string& device,
    const std::string& dtype
) {
  return {
      {"command", shell_line(words)},
      {"commit", commit()},
      {"seed", seeds},
      {"device", device},
      {"dtype", dtype},
      {"date", now()}};
}

}  // namespace horner
