#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>

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
    for (const char c : cell) text += c == '|' ? std::string("\\|") : std::string(1, c);
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

}  // namespace horner
