// Bars, lying, so that their names stay readable; on a phone each name stands above its bar.
#include <cmath>

#include "report/drawing.h"

namespace horner {
namespace {

constexpr double kNames = 300;  // units that a name may take before it is broken

class BarDrawing {
 public:
  BarDrawing(const Bars& bars, Width width)
      : b_(bars), width_(width), title_(title_lines(bars.title, units(width))) {
    const bool narrow = width == Width::narrow;
    top_ = bottom_ = 16 + 18 * double(title_.size());
    for (const Bars::Bar& bar : b_.bars) {
      names_.push_back(lines_of(bar.name, narrow ? units(width) - 10 : kNames));
      const double lines = double(names_.back().size());
      starts_.push_back(bottom_);
      bottom_ += narrow ? 32 + 16 * lines : std::max(30.0, 8 + 16 * lines);
    }
    double left = 30;
    std::vector<double> values;
    if (!b_.value.log) values.push_back(0);
    for (size_t i = 0; i < b_.bars.size(); ++i) {
      const Bars::Bar& bar = b_.bars[i];
      for (const std::string& line : names_[i]) left = std::max(left, text_width(line) + 12);
      for (const double x : {bar.value, bar.low, bar.high}) values.push_back(x);
    }
    left_ = narrow ? 26 : std::min(left, units(width) / 2);
    scale_ = make_scale(b_.value, values, narrow ? 3 : 5);
    right_ = right_end();
    origin_ = scale_.log ? left_ : px(std::clamp(0.0, scale_.low, scale_.high));
  }

  std::string draw() const {
    const std::vector<std::string> label = lines_of(b_.value.label, units(width_));
    std::string text = open_picture(b_.title, bottom_ + 32 + 16 * double(label.size()), width_) +
                       title_at_top(title_);
    for (const double tick : scale_.ticks) {
      text += strip(px(tick), "grid");
      text += text_at(px(tick), bottom_ + 18, "middle", "soft", tick_text(b_.value, tick));
    }
    std::string bars;
    for (size_t i = 0; i < b_.bars.size(); ++i) bars += bar(i);
    text += bars + strip(origin_, "axis");
    for (size_t i = 0; i < label.size(); ++i)
      text += text_at(units(width_) / 2, bottom_ + 38 + 16 * double(i), "middle", "soft", label[i]);
    return text + "</svg>";
  }

 private:
  std::string shown(const Bars::Bar& bar) const {
    if (!bar.text.empty()) return bar.text;
    return scale_.shows(bar.value) ? fmt::format("{:.4g}", bar.value) : "-";
  }

  // The right end of the axis: as far as the texts after the bars leave room.
  double right_end() const {
    const double last = units(width_) - 20;
    const double zero = scale_.log ? 0 : scale_.place(std::clamp(0.0, scale_.low, scale_.high));
    double right = last;
    for (const Bars::Bar& bar : b_.bars) {
      double far = zero;  // a share of the axis
      for (const double x : {bar.value, bar.high})
        if (scale_.shows(x)) far = std::max(far, scale_.place(x));
      const double room = last - text_width(shown(bar)) - left_;
      if (far > 0) right = std::min(right, left_ + room / far);
    }
    return std::max(right, left_ + (last - left_) / 2);
  }

  double px(double x) const { return left_ + scale_.place(x) * (right_ - left_); }

  double end_of(size_t i) const { return i + 1 < starts_.size() ? starts_[i + 1] : bottom_; }
  double top_of(size_t i) const {  // of the bar itself
    return width_ == Width::narrow ? starts_[i] + 6 + 16 * double(names_[i].size())
                                   : (starts_[i] + end_of(i)) / 2 - 10;
  }

  // A line from top to bottom; on a phone it leaves out the names.
  std::string strip(double x, const char* kind) const {
    if (width_ == Width::wide) return line_at(x, top_, x, bottom_, kind);
    std::string text;
    for (size_t i = 0; i < starts_.size(); ++i)
      text += line_at(x, top_of(i) - 2, x, end_of(i) - 2, kind);
    return text;
  }

  std::string bar(size_t i) const {
    const Bars::Bar& bar = b_.bars[i];
    const bool narrow = width_ == Width::narrow;
    const double top = top_of(i), middle = top + 10, lines = double(names_[i].size());
    std::string text = open_group(bar.colour, bar.name);
    for (size_t n = 0; n < names_[i].size(); ++n)
      text += narrow ? text_at(2, starts_[i] + 16 + 16 * double(n), "start", "", names_[i][n])
                     : text_at(
                           left_ - 8,
                           middle + 4.5 + 16 * (double(n) - (lines - 1) / 2),
                           "end",
                           "",
                           names_[i][n]
                       );
    if (!scale_.shows(bar.value)) {
      return text + text_at(left_ + 6, middle + 4.5, "start", "soft", shown(bar)) + "</g>";
    }
    const double x = px(bar.value);
    double far = std::max(x, origin_);
    text += fmt::format(
        R"(<rect class="bar mark" tabindex="0" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="20"><title>{}</title></rect>)",
        std::min(x, origin_),
        top,
        std::max(1.0, std::abs(x - origin_)),
        escape(fmt::format("{}: {}", bar.name, shown(bar)))
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
    return text + text_at(far + 6, middle + 4.5, "start", "", shown(bar)) + "</g>";
  }

  const Bars& b_;
  Width width_;
  std::vector<std::string> title_;
  Scale scale_;
  std::vector<std::vector<std::string>> names_;  // of the bars, in lines
  std::vector<double> starts_;                   // y of each bar's row
  double top_, bottom_, left_, right_, origin_;
};

}  // namespace

std::string svg(const Bars& bars, Width width) { return BarDrawing(bars, width).draw(); }

}  // namespace horner
