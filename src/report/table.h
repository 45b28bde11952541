// A table of text: aligned for a terminal, or as Markdown.
#pragma once

#include <string>
#include <vector>

namespace horner {

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;

  std::string text() const;
  std::string markdown() const;
};

std::string short_number(double x);  // 0, 3.1e-15, 12
std::string short_bytes(double x);   // 512 B, 16 KiB, 20.5 MiB, 1.25 GiB

}  // namespace horner
