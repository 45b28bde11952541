#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "report/terminal.h"

namespace horner {
namespace {

constexpr size_t kLeast = 9;     // letters of a column, where words must be broken
constexpr size_t kWhole = 12;    // a cell of so many letters stays on one line
constexpr size_t kLongest = 24;  // letters of a word that a column must hold

// Words between spaces. A number stays with its interval, "0.1 ± 0.2", and a range is one word, "4 .. 8".
std::vector<std::string> words_of(const std::string& text) {
  const auto joins = [](const std::string& word) { return word == "±" || word == ".."; };
  std::vector<std::string> words;
  bool open = false;  // the last word goes on
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!words.empty() && (open || joins(word))) {
      words.back() += " " + word;
    } else {
      words.push_back(word);
    }
    open = joins(word);
    at = end + 1;
  }
  return words;
}

// What a word is broken into where a line cannot hold it: "taylor:", "order=2,", "norm=l2". "|": of choices.
std::vector<std::string> parts_of(const std::string& word) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < word.size();) {
    const size_t mark = word.find_first_of(",|:", at);
    const size_t end = mark == std::string::npos ? word.size() : mark + 1;
    parts.push_back(word.substr(at, end - at));
    at = end;
  }
  return parts;
}

// The least columns that show a cell without a broken word.
size_t least_width(const std::string& cell, bool head) {
  if (!head && columns_of(cell) <= kWhole) return columns_of(cell);
  size_t longest = 0;
  for (const std::string& word : words_of(cell)) {
    for (const std::string& part : parts_of(word)) longest = std::max(longest, columns_of(part));
  }
  return std::min(longest, kLongest);
}

struct Widths {
  std::vector<size_t> natural, least;
};

Widths widths(const Table& table) {
  Widths w;
  for (size_t i = 0; i < table.head.size(); ++i) {
    size_t natural = columns_of(table.head[i]), least = least_width(table.head[i], true);
    for (const auto& row : table.rows) {
      if (i >= row.size()) continue;
      natural = std::max(natural, columns_of(row[i]));
      least = std::max(least, least_width(row[i], false));
    }
    w.natural.push_back(natural);
    w.least.push_back(least);
  }
  return w;
}

size_t total(const std::vector<size_t>& width) {
  size_t sum = 2 * (width.size() - 1);
  for (const size_t w : width) sum += w;
  return sum;
}

// Takes letters from the widest column that is above its least, until all columns and the gaps between them fit.
void narrow(std::vector<size_t>& width, const std::vector<size_t>& least, size_t most) {
  while (total(width) > most) {
    size_t widest = width.size();
    for (size_t i = 0; i < width.size(); ++i) {
      if (width[i] > least[i] && (widest == width.size() || width[i] > width[widest])) widest = i;
    }
    if (widest == width.size()) return;
    --width[widest];
  }
}

using Columns = std::vector<size_t>;

template <class T>
std::vector<T> picked(const std::vector<T>& list, const Columns& columns) {
  std::vector<T> some;
  for (const size_t i : columns) some.push_back(i < list.size() ? list[i] : T{});
  return some;
}

// The columns of each table: all in one where they fit, else those that name a row beside as many of the others as fit.
std::vector<Columns> tables_of(const Widths& w, size_t keys, size_t most) {
  Columns all;
  for (size_t i = 0; i < w.natural.size(); ++i) all.push_back(i);
  if (most == 0 || all.size() < keys + 2 || total(w.least) <= most) return {all};
  const Columns first(all.begin(), all.begin() + ptrdiff_t(keys));
  std::vector<Columns> tables;
  for (size_t i = keys; i < all.size(); ++i) {
    const bool fits =
        !tables.empty() && total(picked(w.least, tables.back())) + 2 + w.least[i] <= most;
    if (!fits) tables.push_back(first);
    tables.back().push_back(i);
  }
  return tables;
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
  if (columns_of(text) <= letters) return {text};
  std::vector<std::string> lines = {""};
  const auto fits = [&](const std::string& more) {
    return columns_of(lines.back()) + columns_of(more) <= letters;
  };
  for (const std::string& word : words_of(text)) {
    const bool first = lines.size() == 1 && lines.back().empty();
    if (!first && fits(" " + word)) {
      lines.back() += " " + word;
      continue;
    }
    if (!first) lines.emplace_back();
    if (fits(word)) {
      lines.back() = word;
      continue;
    }
    for (std::string part : parts_of(word)) {
      if (!fits(part) && !lines.back().empty()) lines.emplace_back();
      for (; !fits(part); lines.emplace_back()) {
        lines.back() = clipped(part, letters);
        part.erase(0, lines.back().size());
      }
      lines.back() += part;
    }
  }
  return lines;
}

std::string Table::text(size_t most) const {
  const Widths all = widths(*this);
  std::string text;
  for (const Columns& columns : tables_of(all, keys, most)) {
    std::vector<size_t> width = picked(all.natural, columns);
    if (most > 0) {
      narrow(width, picked(all.least, columns), most);
      narrow(width, std::vector<size_t>(width.size(), kLeast), most);
    }
    std::vector<std::string> rule;
    for (const size_t w : width) rule.emplace_back(w, '-');
    text += (text.empty() ? "" : "\n") + line(picked(head, columns), width) + line(rule, width);
    for (const auto& row : rows) text += line(picked(row, columns), width);
  }
  return text;
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
