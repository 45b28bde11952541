#include "report/svg.h"

#include <fmt/format.h>

#include "core/json.h"
#include "report/assets.h"
#include "report/drawing.h"

namespace horner {

std::string escape(const std::string& text) {
  if (!is_utf8(text)) return escape(Json::parse(to_line(Json(text))).get<std::string>());
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default:  // XML has no other control characters
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') safe += c;
    }
  }
  return safe;
}

std::vector<std::string> lines_of(const std::string& text, double width) {
  std::vector<std::string> lines = {""};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    const std::string longer = lines.back().empty() ? word : lines.back() + " " + word;
    if (lines.back().empty() || text_width(longer) <= width) {
      lines.back() = longer;
    } else {
      lines.push_back(word);
    }
    at = end + 1;
  }
  return lines;
}

std::string title_at_top(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i)
    text += text_at(0, 16 + 18 * double(i), "start", "head", lines[i]);
  return text;
}

std::string open_group(int colour, const std::string& key) {
  return fmt::format(
      R"(<g class="{}"{}>)",
      colour_class(colour),
      key.empty() ? "" : fmt::format(R"( data-key="{}")", escape(key))
  );
}

std::string stacked(const std::string& title, const std::vector<std::string>& pictures) {
  std::string inside;
  double height = 0;
  for (const std::string& picture : pictures) {
    const size_t at = picture.find("height=\"");
    inside += fmt::format("<svg y=\"{:g}\"{}", height, picture.substr(std::string("<svg").size()));
    height += std::stod(picture.substr(at + std::string("height=\"").size()));
  }
  return open_picture(title, std::max(height, 1.0), Width::wide) + inside + "</svg>";
}

std::string svg_file(const std::string& picture) {
  const size_t inside = picture.find('>') + 1;
  return picture.substr(0, inside) + "<style>" + picture_css.text +
         "svg { background: var(--ground); }</style>" + picture.substr(inside) + "\n";
}

}  // namespace horner
