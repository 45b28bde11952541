// Bars, lying, so that their names stay readable; on a phone each name stands above its bar.
#include <cmath>

#include "report/drawing.h"

namespace horner {
namespace {

class BarDrawing {
 public:
  BarDrawing(const Bars& bars, Width width)
      : b_(bars), width_(width), title_(lines_of(bars.title, units(width))) {
    const bool narrow = width == Width::narrow;
    step_ = narrow ? 48 : 30;
    top_ = 16 + 18 * double(title_.size());
    bottom_ = top_ + step_ * double(b_.bars.size());
    double left = 30, end = 60;
    std::vector<double> values;
    if (!b_.value.log) values.push_back(0);
    for (const Bars::Bar& bar : b_.bars) {
      left = std::max(left, text_width(bar.name) + 12);
      end = std::max(end, text_width(bar.text) + 20);
      for (const double x : {bar.value, bar.low, bar.high}) values.push_back(x);
    }
    left_ = narrow ? 26 : std::min(left, units(width) / 2);
    right_ = units(width) - std::min(end, 0.4 * units(width));
    scale_ = make_scale(b_.value, values, narrow ? 3 : 5);
    origin_ = scale_.log ? left_ : px(std::clamp(0.0, scale_.low, scale_.high));
  }

  std::string draw() const {
    const std::vector<std::string> label = lines_of(b_.value.label, units(width_));
    std::string text = open_picture(b_.title, bottom_ + 32 + 16 * double(label.size()), width_) +
                       title_at_top(title_);
    for (const double tick : scale_.ticks) {
      text += line_at(px(tick), top_, px(tick), bottom_, "grid");
      text += text_at(px(tick), bottom_ + 18, "middle", "soft", tick_text(b_.value, tick));
    }
    for (size_t i = 0; i < b_.bars.size(); ++i) text += bar(b_.bars[i], top_ + step_ * double(i));
    text += line_at(origin_, top_, origin_, bottom_, "axis");
    for (size_t i = 0; i < label.size(); ++i)
      text += text_at(units(width_) / 2, bottom_ + 38 + 16 * double(i), "middle", "soft", label[i]);
    return text + "</svg>";
  }

 private:
  double px(double x) const { return left_ + scale_.place(x) * (right_ - left_); }

  std::string bar(const Bars::Bar& bar, double y) const {
    const bool narrow = width_ == Width::narrow;
    const double top = y + (narrow ? 22 : 5), middle = top + 10;
    std::string text = open_group(bar.colour, bar.name);
    text += narrow ? text_at(2, y + 16, "start", "", bar.name)
                   : text_at(left_ - 8, middle + 4.5, "end", "", bar.name);
    if (!scale_.shows(bar.value)) {
      const std::string shown = bar.text.empty() ? "-" : bar.text;
      return text + text_at(left_ + 6, middle + 4.5, "start", "soft", shown) + "</g>";
    }
    const std::string shown = bar.text.empty() ? fmt::format("{:.4g}", bar.value) : bar.text;
    const double x = px(bar.value);
    double far = std::max(x, origin_);
    text += fmt::format(
        R"(<rect class="bar mark" tabindex="0" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="20"><title>{}</title></rect>)",
        std::min(x, origin_),
        top,
        std::max(1.0, std::abs(x - origin_)),
        escape(fmt::format("{}: {}", bar.name, shown))
    );
    if (scale_.shows(bar.low) && scale_.shows(bar.high)) {
      far = std::max(far, px(bar.high));
      text += fmt::format(
          R"(<path class="whisker" d="M{:.1f} {:.1f}v10m0 -5H{:.1f}m0 -5v10"/>)",
          px(bar.low),
          middle - 5,
          px(bar.high)
      );
    }
    return text + text_at(far + 6, middle + 4.5, "start", "", shown) + "</g>";
  }

  const Bars& b_;
  Width width_;
  std::vector<std::string> title_;
  Scale scale_;
  double step_, top_, bottom_, left_, right_, origin_;
};

}  // namespace

std::string svg(const Bars& bars, Width width) { return BarDrawing(bars, width).draw(); }

}  // namespace horner
