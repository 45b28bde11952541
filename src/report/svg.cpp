#include "report/svg.h"

#include <fmt/format.h>

#include "core/json.h"
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

std::string picture_style() {
  // Okabe and Ito's colours, darker on white and lighter on black until all stand 3:1 apart from it.
  return R"(
:root { --ink: #1d2329; --soft: #5b6670; --line: #d9dee3; --ground: #ffffff; --panel: #f5f7f9;
  --s0: #0067a5; --s1: #c14e00; --s2: #00805a; --s3: #a8448a; --s4: #8a6d00; --s5: #2390c8; --s6: #6b4fc0; --s7: #4d4d4d;
  --plus: #0067a5; --minus: #d55e00; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
:root { --ink: #e6eaee; --soft: #a3adb7; --line: #384149; --ground: #14181c; --panel: #1d2329;
  --s0: #56a8e0; --s1: #f0883e; --s2: #2fc294; --s3: #e08bc4; --s4: #e3c94b; --s5: #8fd3f5; --s6: #b39df5; --s7: #c4c4c4;
  --plus: #56b4e9; --minus: #f0883e; } }
@media print { :root { --ink: #000; --soft: #444; --line: #ccc; --ground: #fff; --panel: #fff;
  --s0: #0067a5; --s1: #c14e00; --s2: #00805a; --s3: #a8448a; --s4: #8a6d00; --s5: #2390c8; --s6: #6b4fc0; --s7: #4d4d4d;
  --plus: #0067a5; --minus: #d55e00; } }
svg.picture { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.picture text { fill: var(--ink); }
.picture .head { font-weight: 600; font-size: 14px; }
.picture .soft { fill: var(--soft); font-size: 12px; }
.picture .grid { stroke: var(--line); stroke-width: 1; }
.picture .axis { stroke: var(--soft); stroke-width: 1; }
.picture .name { fill: var(--c); font-weight: 600; paint-order: stroke; stroke: var(--ground); stroke-width: 3px; stroke-linejoin: round; }
.picture .curve { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
.picture .dashed { stroke-dasharray: 6 4; }
.picture .band { fill: var(--c); fill-opacity: .15; stroke: none; }
.picture .error { stroke: var(--c); stroke-width: 1.5; fill: none; }
.picture .lead { stroke: var(--c); stroke-width: .75; stroke-opacity: .6; }
.picture .mark { fill: var(--c); stroke: var(--ground); stroke-width: 1; }
.picture .mark:hover, .picture .mark:focus { stroke: var(--ink); stroke-width: 2; outline: none; }
.picture .bar { fill: var(--c); }
.picture .whisker { stroke: var(--ink); stroke-width: 1.5; fill: none; }
.picture .plus { fill: var(--plus); } .picture .minus { fill: var(--minus); }
.picture .row { fill: transparent; } .picture .row:hover { stroke: var(--ink); stroke-width: 1; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); } .s7 { --c: var(--s7); }
)";
}

std::string stacked(const std::string& title, const std::vector<std::string>& pictures) {
  std::string inside;
  double height = 0;
  for (const std::string& picture : pictures) {
    const size_t at = picture.find("height=\"");
    inside += fmt::format("<svg y=\"{:g}\"{}", height, picture.substr(std::string("<svg").size()));
    height += std::stod(picture.substr(at + std::string("height=\"").size()));
  }
  return open_picture(title, std::max(height, 1.0)) + inside + "</svg>";
}

std::string svg_file(const std::string& picture) {
  const size_t inside = picture.find('>') + 1;
  return picture.substr(0, inside) + "<style>" + picture_style() +
         "svg { background: var(--ground); }</style>" + picture.substr(inside) + "\n";
}

}  // namespace horner
