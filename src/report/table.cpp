#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "report/terminal.h"

namespace horner {
namespace {

std::vector<size_t> widths(const Table& table) {
  std::vector<size_t> width;
  for (const std::string& cell : table.head) width.push_back(columns_of(cell));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], columns_of(row[i]));
  }
  return width;
}

constexpr size_t kLeast = 9;  // letters of a column that is made narrower

// Takes letters from the widest column until all of them and the gaps between them fit.
void narrow(std::vector<size_t>& width, size_t most) {
  size_t total = 2 * (width.size() - 1);
  for (const size_t w : width) total += w;
  while (total > most) {
    size_t& widest = *std::max_element(width.begin(), width.end());
    if (widest <= kLeast) return;
    --widest;
    --total;
  }
}

// One row; as many lines as its tallest cell has.
std::string line(const std::vector<std::string>& cells, const std::vector<size_t>& width) {
  std::vector<std::vector<std::string>> parts;
  size_t height = 1;
  for (size_t i = 0; i < cells.size(); ++i) {
    parts.push_back(wrapped_lines(cells[i], width[i]));
    height = std::max(height, parts.back().size());
  }
  std::string text;
  for (size_t n = 0; n < height; ++n) {
    std::string one;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string part = n < parts[i].size() ? parts[i][n] : "";
      one += part;
      if (i + 1 < cells.size()) one.append(width[i] - columns_of(part) + 2, ' ');
    }
    if (n > 0) one.erase(one.find_last_not_of(' ') + 1);
    text += one + "\n";
  }
  return text;
}

std::string markdown_line(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) {
    text += ' ';
    for (size_t i = 0; i < cell.size(); ++i) {
      const bool bare = cell[i] == '|' && (i == 0 || cell[i - 1] != '\\');
      if (bare) text += '\\';
      text += cell[i] == '\n' || cell[i] == '\r' ? ' ' : cell[i];
    }
    text += " |";
  }
  return text + "\n";
}

}  // namespace

std::vector<std::string> wrapped_lines(const std::string& text, size_t letters) {
  std::vector<std::string> lines;
  std::string rest = text;
  while (columns_of(rest) > letters) {
    const std::string head = clipped(rest, letters + 1);  // a space may follow a full line
    size_t end = head.rfind(' '), next = end + 1;
    if (end == std::string::npos || end == 0) {
      const std::string full = clipped(rest, letters);
      const size_t comma = full.find_last_of(",|");  // "|": of choices
      end = next = comma == std::string::npos ? full.size() : comma + 1;
    }
    lines.push_back(rest.substr(0, end));
    rest.erase(0, next);
  }
  if (!rest.empty() || lines.empty()) lines.push_back(rest);
  return lines;
}

std::string Table::text(size_t most) const {
  std::vector<size_t> width = widths(*this);
  if (most > 0) narrow(width, most);
  std::vector<std::string> rule;
  for (const size_t w : width) rule.emplace_back(w, '-');
  std::string all = line(head, width) + line(rule, width);
  for (const auto& row : rows) all += line(row, width);
  return all;
}

std::string Table::markdown() const {
  std::string all =
      markdown_line(head) + markdown_line(std::vector<std::string>(head.size(), "---"));
  for (const auto& row : rows) all += markdown_line(row);
  return all;
}

std::string markdown_text(const std::string& text) {
  std::string safe;
  const auto letter = [&](size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '_' && i > 0 && letter(i - 1) && letter(i + 1)) {
      safe += c;  // inside a word it marks nothing
    } else if (static_cast<unsigned char>(c) < 0x20) {
      safe += ' ';
    } else if (c == '<' || c == '>' || c == '&') {
      safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;";
    } else {
      if (std::string_view("\\`*_[]|~#!$").find(c) != std::string_view::npos) safe += '\\';
      safe += c;
    }
  }
  return safe;
}

std::string markdown_code(const std::string& text) {
  std::string line = text;
  for (char& c : line) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  size_t longest = 0, run = 0;
  for (const char c : line) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`'), space = longest > 0 ? " " : "";
  return fence + space + line + space + fence;
}

}  // namespace horner
