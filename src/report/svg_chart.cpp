// Lines and points over two axes.
#include <cmath>
#include <map>

#include "report/drawing.h"

namespace horner {
namespace {

struct Box {
  double left, top, right, bottom;
};

bool overlap(const Box& a, const Box& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// The share of the width that names at the ends of lines may take; longer ones stand below.
constexpr double kNames = 0.3;

// The places nearest to rising `wanted` ones that are `apart`, from `least` to `most`: what would come too near forms a group,
// which spreads around its mean.
std::vector<double> spread(
    const std::vector<double>& wanted, double apart, double least, double most
) {
  struct Group {
    double first;  // the place of its first member
    size_t size;
  };
  std::vector<Group> groups;
  for (const double place : wanted) {
    groups.push_back({place, 1});
    while (groups.size() > 1) {
      const Group last = groups.back();
      Group& before = groups[groups.size() - 2];
      const double shift = apart * double(before.size);
      if (before.first + shift <= last.first) break;
      before.first =
          (before.first * double(before.size) + (last.first - shift) * double(last.size)) /
          double(before.size + last.size);
      before.size += last.size;
      groups.pop_back();
    }
  }
  std::vector<double> places;
  for (const Group& g : groups) {
    for (size_t i = 0; i < g.size; ++i) places.push_back(g.first + apart * double(i));
  }
  for (size_t i = places.size(); i-- > 0; most = places[i] - apart)
    places[i] = std::min(places[i], most);
  for (double& place : places) {
    place = std::max(place, least);
    least = place + apart;
  }
  return places;
}

class Drawing {
 public:
  Drawing(const Chart& chart, Width width)
      : c_(chart),
        width_(width),
        title_(title_lines(chart.title, units(width))),
        y_label_(lines_of(chart.y.label, units(width))),
        x_label_(lines_of(chart.x.label, units(width) - 60)) {
    const bool narrow = width == Width::narrow;
    std::vector<double> xs, ys;
    double longest = 0;
    for (size_t i = 0; i < c_.series.size(); ++i) {
      const Line& s = c_.series[i];
      if (s.points.size() > 1) longest = std::max(longest, name_width(s.name));
      if (!s.name.empty() && !(narrow && is_baseline(s))) named_.push_back(i);
      for (const Point& p : s.points) {
        xs.push_back(p.x);
        for (const double y : {p.y, p.low, p.high}) ys.push_back(y);
      }
    }
    const bool room = !narrow && longest <= kNames * units(width);
    labels_ = c_.labels && room && named_.size() > 1;
    legend_ = c_.legend || (!room && named_.size() > 1);
    top_ += 18 * double(title_.size() - 1) + 16 * double(y_label_.size() - 1);
    bottom_ = top_ + (narrow ? 220 : 300);
    x_ = make_scale(c_.x, xs, narrow ? 4 : 6);
    y_ = make_scale(c_.y, ys, 5);
    for (const double tick : y_.ticks)
      left_ = std::max(left_, 14 + text_width(tick_text(c_.y, tick)));
    right_ = units(width) - 20;
    if (labels_ && longest > 0) right_ = units(width) - 18 - longest;
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
    if (width_ == Width::narrow) body += baseline_names();
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

  // "loss, lower is better" without its direction.
  static std::string quantity(const std::string& label) {
    for (const char* direction : {", lower is better", ", higher is better"}) {
      const size_t at = label.find(direction);
      if (at != std::string::npos) return label.substr(0, at);
    }
    return label;
  }

  std::string title(const Line& s, const Point& p) const {
    if (!p.title.empty()) return p.title;
    std::string text = fmt::format(
        "{}: {} {}, {} {:.4g}",
        s.name,
        quantity(c_.x.label),
        tick_text(c_.x, p.x),
        quantity(c_.y.label),
        p.y
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

  // A grey line from side to side. A legend could not tell several apart, so on a phone each has its name on it.
  static bool is_baseline(const Line& s) { return s.dashed && !s.marks && s.colour == kGrey; }

  std::string baseline_names() const {
    struct
        Group {  // of lines so near each other that they share a place: "shortcut / chance", from top to bottom
      std::string names;
      double top, bottom;
    };
    std::multimap<double, std::string> lines;
    for (const Line& s : c_.series) {
      if (is_baseline(s) && !s.points.empty()) lines.emplace(py(s.points[0].y), s.name);
    }
    std::vector<Group> groups;
    for (const auto& [y, name] : lines) {
      if (groups.empty() || y - groups.back().bottom > 16) {
        groups.push_back({name, y, y});
      } else {
        groups.back().names += " / " + name;
        groups.back().bottom = y;
      }
    }
    const std::vector<Box> taken = drawn();
    std::string text;
    for (const Group& g : groups) {
      const double w = text_width(g.names);
      const Box box = baseline_place(w, g.top, g.bottom, taken);
      text += "<g class=\"grey\">" +
              text_at((box.left + box.right) / 2, box.bottom - 3, "middle", "soft", g.names) +
              "</g>";
    }
    return text;
  }

  // Above the upper line or below the lower one, where no mark is.
  Box baseline_place(double w, double top, double bottom, const std::vector<Box>& taken) const {
    const double lefts[] = {right_ - w, (left_ + right_ - w) / 2, left_ + 4};
    const double tops[] = {top - 16, bottom + 1};
    for (const double y : tops) {
      for (const double left : lefts) {
        const Box box{left, y, left + w, y + 15};
        const bool inside = y >= top_ && y + 15 <= bottom_;
        if (inside &&
            std::none_of(taken.begin(), taken.end(), [&](const Box& o) { return overlap(box, o); }))
          return box;
      }
    }
    const double y = top - 16 >= top_ ? tops[0] : tops[1];
    return {lefts[0], y, lefts[0] + w, y + 15};
  }

  // What no name may cover: marks, their intervals, the horizontal axis.
  std::vector<Box> drawn() const {
    std::vector<Box> taken = {{left_, bottom_ - 1, right_, bottom_ + 1}};
    for (const Line& s : c_.series) {
      for (const Point& p : s.points) {
        if (!s.marks || !shown(p)) continue;
        const double x = px(p.x), y = py(p.y);
        taken.push_back({x - 5, y - 5, x + 5, y + 5});
        if (!s.band && y_.shows(p.low) && y_.shows(p.high))
          taken.push_back({x - 4, py(p.high), x + 4, py(p.low)});
      }
    }
    return taken;
  }

  // The last point that is shown: a name stands beside it.
  const Point* end_of(const Line& s) const {
    const Point* end = nullptr;
    for (const Point& p : s.points) {
      if (shown(p) && (end == nullptr || p.x >= end->x)) end = &p;
    }
    return end;
  }

  // The series that end furthest to the right, from top to bottom.
  std::vector<size_t> at_edge() const {
    std::vector<size_t> list;
    double edge = 0;
    for (const size_t i : named_) {
      const Point* end = end_of(c_.series[i]);
      if (c_.series[i].points.size() < 2 || end == nullptr || px(end->x) < edge - 1) continue;
      if (px(end->x) > edge + 1) list.clear();
      edge = std::max(edge, px(end->x));
      list.push_back(i);
    }
    std::stable_sort(list.begin(), list.end(), [&](size_t a, size_t b) {
      return end_of(c_.series[a])->y > end_of(c_.series[b])->y;
    });
    return list;
  }

  // Names at the right edge keep the order of their ends.
  std::map<size_t, Box> edge_places() const {
    const std::vector<size_t> list = at_edge();
    std::map<size_t, Box> places;
    if (list.empty()) return places;
    std::vector<double> ends;
    for (const size_t i : list) ends.push_back(py(end_of(c_.series[i])->y));
    const double x = px(end_of(c_.series[list[0]])->x) + 9;
    const double most = x < right_ ? bottom_ - 9 : bottom_ - 4;  // inside, above the axis
    const std::vector<double> middles = spread(ends, 17, top_ - 16, most);
    for (size_t n = 0; n < list.size(); ++n)
      places[list[n]] = {
          x, middles[n] - 8, x + name_width(c_.series[list[n]].name), middles[n] + 8};
    return places;
  }

  // Each name beside its series: the end of a line, the best point of a scatter.
  std::string names() const {
    std::vector<Box> taken = drawn();
    const std::map<size_t, Box> edge = edge_places();
    for (const auto& [i, place] : edge) taken.push_back(place);
    std::string text;
    for (const size_t i : named_) {
      const Line& s = c_.series[i];
      const Point* end = end_of(s);
      if (end == nullptr) continue;
      const double x = px(end->x), y = py(end->y);
      const auto found = edge.find(i);
      const Box at = found != edge.end()
                         ? found->second
                         : free_place(x, y, name_width(s.name), s.points.size() > 1, taken);
      if (found == edge.end()) taken.push_back(at);
      text += name_at(i, at, x, y);
    }
    return text;
  }

  // A name, with a line to its point (x, y) if it had to move.
  std::string name_at(size_t i, const Box& at, double x, double y) const {
    const double middle = (at.top + at.bottom) / 2;
    std::string text = open_series(i);
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
        c_.series[i].name
    );
    return text + "</g>";
  }

  // The free place that is nearest to a mark; beside the end of a line only to its right.
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
