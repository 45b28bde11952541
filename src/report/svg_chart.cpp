// Lines and points over two axes.
#include <cmath>

#include "report/drawing.h"

namespace horner {
namespace {

struct Box {
  double left, top, right, bottom;
};

bool overlap(const Box& a, const Box& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

class Drawing {
 public:
  Drawing(const Chart& chart, Width width)
      : c_(chart),
        width_(width),
        title_(title_lines(chart.title, units(width))),
        y_label_(lines_of(chart.y.label, units(width))),
        x_label_(lines_of(chart.x.label, units(width) - 60)) {
    std::vector<double> xs, ys;
    double longest = 0;
    for (size_t i = 0; i < c_.series.size(); ++i) {
      const Line& s = c_.series[i];
      longest = std::max(longest, name_width(s.name));
      if (!s.name.empty()) named_.push_back(i);
      for (const Point& p : s.points) {
        xs.push_back(p.x);
        for (const double y : {p.y, p.low, p.high}) ys.push_back(y);
      }
    }
    const bool narrow = width == Width::narrow;
    labels_ = c_.labels && !narrow && named_.size() > 1;
    legend_ = c_.legend || (narrow && named_.size() > 1);
    top_ += 18 * double(title_.size() - 1) + 16 * double(y_label_.size() - 1);
    bottom_ = top_ + (narrow ? 220 : 300);
    x_ = make_scale(c_.x, xs, narrow ? 4 : 6);
    y_ = make_scale(c_.y, ys, 5);
    for (const double tick : y_.ticks)
      left_ = std::max(left_, 14 + text_width(tick_text(c_.y, tick)));
    right_ = units(width) - 20;
    const bool ends = std::any_of(c_.series.begin(), c_.series.end(), [](const Line& s) {
      return s.line && s.points.size() > 1;
    });
    if (labels_ && ends) right_ = units(width) - std::min(18 + longest, units(width) / 2);
  }

  std::string draw() {
    const double below = legend_ ? legend_height() : 0;
    std::string body =
        open_picture(c_.title, bottom_ + label_end() + below, width_) + title_at_top(title_);
    for (size_t i = 0; i < y_label_.size(); ++i)
      body += text_at(
          0, top_ - 12 - 16 * double(y_label_.size() - 1 - i), "start", "soft", y_label_[i]
      );
    body += axes();
    for (size_t i = 0; i < c_.series.size(); ++i) body += series(i);
    if (labels_) body += names();
    if (legend_) body += legend();
    return body + "</svg>";
  }

 private:
  double label_end() const { return 52 + 16 * double(x_label_.size() - 1); }  // below bottom_
  double px(double x) const { return left_ + x_.place(x) * (right_ - left_); }
  double py(double y) const { return bottom_ - y_.place(y) * (bottom_ - top_); }
  bool shown(const Point& p) const { return x_.shows(p.x) && y_.shows(p.y); }

  int colour(size_t i) const { return c_.series[i].colour == -1 ? int(i) : c_.series[i].colour; }
  std::string open_series(size_t i) const {
    return open_group(colour(i), c_.series.size() > 1 ? c_.series[i].name : "");
  }

  std::string axes() const {
    std::string text;
    for (const double tick : y_.ticks) {
      text += line_at(left_, py(tick), right_, py(tick), "grid");
      text += text_at(left_ - 8, py(tick) + 4, "end", "soft", tick_text(c_.y, tick));
    }
    for (const double tick : x_.ticks) {
      text += line_at(px(tick), bottom_, px(tick), bottom_ + 5, "axis");
      const std::string words = tick_text(c_.x, tick);  // the last one ends at the edge
      const double middle = std::min(px(tick), units(width_) - text_width(words) / 2);
      text += text_at(middle, bottom_ + 20, "middle", "soft", words);
    }
    text += line_at(left_, bottom_, right_, bottom_, "axis");
    for (size_t i = 0; i < x_label_.size(); ++i)
      text += text_at(
          (left_ + right_) / 2, bottom_ + 42 + 16 * double(i), "middle", "soft", x_label_[i]
      );
    return text;
  }

  std::string title(const Line& s, const Point& p) const {
    if (!p.title.empty()) return p.title;
    std::string text = fmt::format(
        "{}: {} {}, {} {:.4g}", s.name, c_.x.label, tick_text(c_.x, p.x), c_.y.label, p.y
    );
    if (y_.shows(p.low) && y_.shows(p.high))
      text += fmt::format(" ({:.4g} .. {:.4g})", p.low, p.high);
    return text;
  }

  // Circle, square, triangle, diamond: a series can be told without its colour.
  static std::string mark(double x, double y, int shape) {
    switch (shape % 4) {
      case 1: return fmt::format("M{:.1f} {:.1f}h9v9h-9z", x - 4.5, y - 4.5);
      case 2: return fmt::format("M{:.1f} {:.1f}l5.5 9.5h-11z", x, y - 6);
      case 3: return fmt::format("M{:.1f} {:.1f}l6 6l-6 6l-6 -6z", x, y - 6);
      default: return fmt::format("M{:.1f} {:.1f}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z", x - 5, y);
    }
  }

  std::string interval(const Line& s) const {
    std::string forward, back, bars;
    for (const Point& p : s.points) {
      if (!shown(p) || !y_.shows(p.low) || !y_.shows(p.high)) continue;
      const double x = px(p.x), low = py(p.low), high = py(p.high);
      forward += fmt::format("{}{:.1f} {:.1f}", forward.empty() ? "M" : "L", x, high);
      back = fmt::format("L{:.1f} {:.1f}", x, low) + back;
      bars += fmt::format("M{0:.1f} {2:.1f}h8m-4 0V{1:.1f}m-4 0h8", x - 4, high, low);
    }
    if (forward.empty()) return "";
    return s.band ? fmt::format(R"(<path class="band" d="{}{}z"/>)", forward, back)
                  : fmt::format(R"(<path class="error" d="{}"/>)", bars);
  }

  std::string series(size_t i) const {
    const Line& s = c_.series[i];
    std::string text = open_series(i) + interval(s), path;
    bool pen = false;
    for (const Point& p : s.points) {
      if (shown(p)) path += fmt::format("{}{:.1f} {:.1f}", pen ? "L" : "M", px(p.x), py(p.y));
      pen = shown(p);
    }
    if (s.line && !path.empty())
      text += fmt::format(R"(<path class="curve{}" d="{}"/>)", s.dashed ? " dashed" : "", path);
    for (const Point& p : s.points) {
      if (!s.marks || !shown(p)) continue;
      text += fmt::format(
          R"(<path class="mark" tabindex="0" d="{}"><title>{}</title></path>)",
          mark(px(p.x), py(p.y), int(i)),
          escape(title(s, p))
      );
    }
    return text + "</g>";
  }

  // Each name beside its series: the end of a line, the best point of a scatter; moved until it
  // covers neither a mark nor another name.
  std::string names() const {
    std::vector<Box> taken;
    for (const Line& s : c_.series) {
      for (const Point& p : s.points) {
        if (s.marks && shown(p))
          taken.push_back({px(p.x) - 5, py(p.y) - 5, px(p.x) + 5, py(p.y) + 5});
      }
    }
    std::string text;
    for (const size_t i : named_) {
      const Line& s = c_.series[i];
      const Point* end = nullptr;
      for (const Point& p : s.points) {
        if (shown(p) && (end == nullptr || p.x >= end->x)) end = &p;
      }
      if (end == nullptr) continue;
      const double x = px(end->x), y = py(end->y), w = name_width(s.name);
      const Box at = free_place(x, y, w, s.line && s.points.size() > 1, taken);
      taken.push_back(at);
      const double middle = (at.top + at.bottom) / 2;
      text += open_series(i);
      if (std::abs(middle - y) > 14) {
        const double near = at.left > x ? at.left - 1 : at.right < x ? at.right + 1 : x;
        text += line_at(x, y, near, middle, "lead");
      }
      const bool before = at.right < x;  // it ends at the mark, however wide the font draws it
      text += text_at(
          before ? at.right - 1 : at.left + 1,
          middle + 4.5,
          before ? "end" : "start",
          "name",
          s.name
      );
      text += "</g>";
    }
    return text;
  }

  Box free_place(double x, double y, double w, bool line, const std::vector<Box>& taken) const {
    const double h = 16;
    const auto box = [&](double left, double middle) {
      return Box{left, middle - h / 2, left + w, middle + h / 2};
    };
    const auto free = [&](const Box& b) {
      return b.left >= left_ && b.right <= units(width_) && b.top >= 20 &&
             b.bottom <= bottom_ + 4 &&
             std::none_of(taken.begin(), taken.end(), [&](const Box& o) { return overlap(b, o); });
    };
    for (double away = 0; away < 200; away += 4) {
      for (const double dy : {-away, away}) {
        if (const Box right = box(x + 9, y + dy); free(right)) return right;
        if (line) continue;
        if (const Box left = box(x - 9 - w, y + dy); free(left)) return left;
        if (away >= 16) {
          if (const Box over = box(x - w / 2, y + dy); free(over)) return over;
        }
      }
    }
    return box(x + 9, y);
  }

  double legend_step() const {
    double longest = 0;
    for (const Line& s : c_.series) longest = std::max(longest, text_width(s.name));
    return std::min(units(width_), longest + 36);
  }
  size_t legend_columns() const {
    return std::max<size_t>(1, size_t(units(width_) / legend_step()));
  }
  double legend_height() const {
    return 20 * double((named_.size() + legend_columns() - 1) / legend_columns()) + 8;
  }

  std::string legend() const {
    std::string text;
    for (size_t n = 0; n < named_.size(); ++n) {
      const Line& s = c_.series[named_[n]];
      const double x = legend_step() * double(n % legend_columns()),
                   y = bottom_ + label_end() + 12 + 20 * double(n / legend_columns());
      text += open_series(named_[n]);
      text +=
          s.marks
              ? fmt::format(R"(<path class="mark" d="{}"/>)", mark(x + 8, y - 4, int(named_[n])))
              : line_at(x, y - 4, x + 16, y - 4, s.dashed ? "curve dashed" : "curve");
      text += text_at(x + 20, y, "start", "", s.name) + "</g>";
    }
    return text;
  }

  const Chart& c_;
  Width width_;
  std::vector<std::string> title_, y_label_, x_label_;  // in lines
  std::vector<size_t> named_;                           // series with a name
  bool labels_ = true, legend_ = false;
  Scale x_, y_;
  double left_ = 40, right_ = 0, top_ = 56, bottom_ = 0;
};

}  // namespace

std::string svg(const Chart& chart, Width width) { return Drawing(chart, width).draw(); }

}  // namespace horner
