#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace horner {
namespace {

std::vector<size_t> widths(const Table& table) {
  std::vector<size_t> width;
  for (const std::string& cell : table.head) width.push_back(cell.size());
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  return width;
}

std::string line(const std::vector<std::string>& cells, const std::vector<size_t>& width) {
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    text += i + 1 < cells.size() ? fmt::format("{:<{}}  ", cells[i], width[i]) : cells[i];
  }
  return text + "\n";
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

std::string Table::text() const {
  const std::vector<size_t> width = widths(*this);
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
