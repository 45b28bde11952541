// A table of text: aligned for a terminal, or as Markdown.
#pragma once

#include <string>
#include <vector>

namespace horner {

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;

  // most: columns of a terminal. Cells of the widest columns are then broken into lines; 0: as wide as it gets.
  std::string text(size_t most = 0) const;
  std::string markdown() const;
};

// Lines of at most so many letters: broken at spaces, else after a comma or a bar, else anywhere.
std::vector<std::string> wrapped_lines(const std::string& text, size_t letters);

// Text that Markdown shows as it is: no markup, no HTML, no end of a table's cell.
std::string markdown_text(const std::string& text);
std::string markdown_code(const std::string& text);  // in a code span, whatever backticks it holds

}  // namespace horner
