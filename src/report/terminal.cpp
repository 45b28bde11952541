#include "report/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace horner {
namespace {

bool starts_letter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

size_t terminal_width(int descriptor) {
  if (isatty(descriptor) == 0) return 0;
  struct winsize size {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

size_t columns_of(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), starts_letter));
}

std::string clipped(const std::string& text, size_t columns) {
  if (columns == 0 || columns_of(text) <= columns) return text;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if (starts_letter(text[end]) && seen++ == columns) break;
  }
  return text.substr(0, end);
}

std::string fitted(const Table& table) { return table.text(terminal_width(STDOUT_FILENO)); }

std::string fitted(const std::string& paragraph) {
  return wrapped(paragraph, terminal_width(STDOUT_FILENO));
}

std::string wrapped(const std::string& text, size_t columns) {
  if (columns == 0) return text;
  std::string all;
  for (const std::string& line : wrapped_lines(text, columns))
    all += (all.empty() ? "" : "\n") + line;
  return all;
}

std::string wrapped(const std::string& text, size_t columns, size_t indent) {
  if (columns <= indent || columns_of(text) <= columns) return text;
  const size_t own = std::min(text.find_first_not_of(' '), text.size());
  if (columns <= own) return text;
  const std::string body = text.substr(own);
  std::string all = text.substr(0, own) + wrapped_lines(body, columns - own)[0];
  const size_t next = std::min(body.find_first_not_of(' ', all.size() - own), body.size());
  if (next == body.size()) return all;
  for (const std::string& line : wrapped_lines(body.substr(next), columns - indent))
    all += "\n" + std::string(indent, ' ') + line;
  return all;
}

}  // namespace horner
