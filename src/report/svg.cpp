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

namespace {

// A picture inside another one.
std::string placed(const std::string& picture, double x, double y) {
  return fmt::format(
      "<svg x=\"{:g}\" y=\"{:g}\"{}", x, y, picture.substr(std::string("<svg").size())
  );
}

double size_of(const std::string& picture, const std::string& name) {  // name: width or height
  const std::string before = " " + name + "=\"";
  return std::stod(picture.substr(picture.find(before) + before.size()));
}

}  // namespace

std::string stacked(const std::string& title, const std::vector<std::string>& pictures) {
  std::string inside;
  double height = 0;
  for (const std::string& picture : pictures) {
    inside += placed(picture, 0, height);
    height += size_of(picture, "height");
  }
  return open_picture(title, std::max(height, 1.0), Width::wide) + inside + "</svg>";
}

std::string tiled(
    const std::string& title, const std::vector<std::string>& pictures, size_t columns
) {
  constexpr double kBetween = 16;
  std::string inside;
  double width = 1, top = 0;
  for (size_t first = 0; first < pictures.size(); first += columns) {
    double left = 0, tallest = 0;
    for (size_t i = first; i < std::min(first + columns, pictures.size()); ++i) {
      inside += placed(pictures[i], left, top);
      left += size_of(pictures[i], "width") + kBetween;
      tallest = std::max(tallest, size_of(pictures[i], "height"));
    }
    width = std::max(width, left - kBetween);
    top += tallest + kBetween;
  }
  return open_picture(title, std::max(top, 1.0), width, "wide") + inside + "</svg>";
}

std::string svg_file(const std::string& picture) {
  const size_t inside = picture.find('>') + 1;
  return picture.substr(0, inside) + "<style>" + picture_css.text +
         "svg { background: var(--ground); }</style>" + picture.substr(inside) + "\n";
}

}  // namespace horner
