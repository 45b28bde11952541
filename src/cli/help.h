// Help that fits its terminal.
#pragma once

#include <sstream>
#include <string>

#include "report/terminal.h"

namespace horner {

// CLI11 puts descriptions at column 30. Examples stay commands that can be pasted. columns = 0: as it is.
inline std::string fitted_help(const std::string& help, size_t columns) {
  constexpr size_t kDescription = 30;
  if (columns == 0) return help;
  std::istringstream lines(help);
  std::string all;
  for (std::string line; std::getline(lines, line); all += "\n") {
    const size_t own = std::min(line.find_first_not_of(' '), line.size());
    if (line.compare(own, 8, "./horner") != 0) {
      all += wrapped(line, columns, own == 2 ? kDescription : own);
      continue;
    }
    const std::string example = wrapped(line, columns > 2 ? columns - 2 : columns, 6);
    for (const char c : example) all += c == '\n' ? std::string(" \\\n") : std::string(1, c);
  }
  return all;
}

}  // namespace horner
