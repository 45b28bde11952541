// Bars, lying, so that their names stay readable.
#include <cmath>

#include "report/drawing.h"

namespace horner {

std::string svg(const Bars& b) {
  const double step = 30, top = 34, bottom = top + step * double(b.bars.size());
  double left = 30, end = 60;
  std::vector<double> values;
  if (!b.value.log) values.push_back(0);
  for (const Bars::Bar& bar : b.bars) {
    left = std::max(left, text_width(bar.name) + 12);
    end = std::max(end, text_width(bar.text) + 20);
    for (const double x : {bar.value, bar.low, bar.high}) values.push_back(x);
  }
  left = std::min(left, kWidth / 2);
  const double right = kWidth - end;
  const Scale scale = make_scale(b.value, values, 5);
  const auto px = [&](double x) { return left + scale.place(x) * (right - left); };
  const double origin = scale.log ? left : px(std::clamp(0.0, scale.low, scale.high));

  std::string text = open_picture(b.title, bottom + 48) + text_at(0, 16, "start", "head", b.title);
  for (const double tick : scale.ticks) {
    text += line_at(px(tick), top, px(tick), bottom, "grid");
    text += text_at(px(tick), bottom + 18, "middle", "soft", tick_text(b.value, tick));
  }
  for (size_t i = 0; i < b.bars.size(); ++i) {
    const Bars::Bar& bar = b.bars[i];
    const double y = top + step * double(i) + 5, middle = y + 10;
    text += text_at(left - 8, middle + 4.5, "end", "", bar.name);
    if (!scale.shows(bar.value)) {
      text += text_at(left + 6, middle + 4.5, "start", "soft", bar.text.empty() ? "-" : bar.text);
      continue;
    }
    const std::string shown = bar.text.empty() ? fmt::format("{:.4g}", bar.value) : bar.text;
    const double x = px(bar.value);
    double far = std::max(x, origin);
    text += fmt::format(
        R"(<g class="s{}"><rect class="bar mark" tabindex="0" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="20"><title>{}</title></rect></g>)",
        bar.colour % kColours,
        std::min(x, origin),
        y,
        std::max(1.0, std::abs(x - origin)),
        escape(fmt::format("{}: {}", bar.name, shown))
    );
    if (scale.shows(bar.low) && scale.shows(bar.high)) {
      far = std::max(far, px(bar.high));
      text += fmt::format(
          R"(<path class="whisker" d="M{:.1f} {:.1f}v10m0 -5H{:.1f}m0 -5v10"/>)",
          px(bar.low),
          middle - 5,
          px(bar.high)
      );
    }
    text += text_at(far + 6, middle + 4.5, "start", "", shown);
  }
  text += line_at(origin, top, origin, bottom, "axis");
  text += text_at((left + right) / 2, bottom + 40, "middle", "soft", b.value.label);
  return text + "</svg>";
}

}  // namespace horner
