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

// Text that Markdown shows as it is: no markup, no HTML, no end of a table's cell.
std::string markdown_text(const std::string& text);
std::string markdown_code(const std::string& text);  // in a code span, whatever backticks it holds

}  // namespace horner
