// A table of text: aligned for a terminal, or as Markdown.
#pragma once

#include <string>
#include <vector>

namespace horner {

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  size_t keys = 1;  // columns that name a row

  // most: columns of a terminal; 0: any number. Cells of the widest columns are broken into lines between words. Where that
  // is not enough, the other columns follow in tables of their own, each with the columns that name its rows.
  std::string text(size_t most = 0) const;
  std::string markdown() const;
};

// Lines of at most so many letters: broken at spaces, a long word after a comma, bar or colon, else anywhere.
std::vector<std::string> wrapped_lines(const std::string& text, size_t letters);

// Text that Markdown shows as it is: no markup, no HTML, no end of a table's cell.
std::string markdown_text(const std::string& text);
std::string markdown_code(const std::string& text);  // in a code span, whatever backticks it holds

}  // namespace horner
