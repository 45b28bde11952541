// What the pictures share: their frame, numbers as text, the room that a text takes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "report/palette.h"
#include "report/svg.h"

namespace horner {

constexpr double kWide = 800, kNarrow = 360;  // units; the narrow one is a phone's

inline double units(Width width) { return width == Width::wide ? kWide : kNarrow; }

inline std::string open_picture(
    const std::string& title, double height, double width, const std::string& kind
) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" class="picture {}" viewBox="0 0 {:g} {:g}" width="{:g}" height="{:g}" role="img" aria-label="{}">)",
      kind,
      width,
      height,
      width,
      height,
      escape(title)
  );
}

inline std::string open_picture(const std::string& title, double height, Width width) {
  return open_picture(title, height, units(width), width == Width::wide ? "wide" : "narrow");
}

// About what 13 px of a sans-serif font takes; code points, not bytes.
inline double text_width(const std::string& text) {
  return 7.4 * double(std::count_if(text.begin(), text.end(), [](char c) {
           return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
         }));
}

// The same of the bold name beside a line. A bold letter takes up to a quarter more.
inline double name_width(const std::string& text) { return 1.25 * text_width(text); }

// Broken at spaces into lines of at most `width` units, where words allow it.
std::vector<std::string> lines_of(const std::string& text, double width);

// The same for a title, whose letters are larger and bold.
inline std::vector<std::string> title_lines(const std::string& text, double width) {
  return lines_of(text, width / 1.3);
}

inline std::string text_at(
    double x, double y, const std::string& anchor, const std::string& kind, const std::string& text
) {
  return fmt::format(
      R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>)",
      x,
      y,
      anchor,
      kind.empty() ? "" : " class=\"" + kind + "\"",
      escape(text)
  );
}

inline std::string line_at(double x1, double y1, double x2, double y2, const std::string& kind) {
  return fmt::format(
      R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>)", x1, y1, x2, y2, kind
  );
}

// The lines of a title from y = 16 on.
std::string title_at_top(const std::vector<std::string>& lines);

// Opens a group in a colour; a key joins it to rows of tables (page.js).
std::string open_group(int colour, const std::string& key);

}  // namespace horner
