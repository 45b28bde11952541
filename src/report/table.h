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

}  // namespace horner
