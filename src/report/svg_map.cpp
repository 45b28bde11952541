// A map of weights. Cells of one shade are one path, so that a map of 4096 cells stays small; each
// row has a title of its own: what it reads most.
#include <array>
#include <cmath>

#include "core/check.h"
#include "report/drawing.h"

namespace horner {
namespace {

constexpr int64_t kMost = 64;  // cells along a side; more are averaged in blocks
constexpr int kShades = 12;

struct Cells {
  int64_t rows, columns, high, wide;  // cells, and the numbers that one stands for
  std::vector<double> values;
};

Cells blocks(const HeatMap& m) {
  Cells c;
  c.high = (m.rows + kMost - 1) / kMost;
  c.wide = (m.columns + kMost - 1) / kMost;
  c.rows = (m.rows + c.high - 1) / c.high;
  c.columns = (m.columns + c.wide - 1) / c.wide;
  c.values.assign(size_t(c.rows * c.columns), 0);
  std::vector<double> count(c.values.size(), 0);
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) {
      const double x = m.values[size_t(i * m.columns + j)];
      const size_t at = size_t(i / c.high * c.columns + j / c.wide);
      c.values[at] += std::isfinite(x) ? x : 0;
      count[at] += 1;
    }
  }
  for (size_t i = 0; i < count.size(); ++i) c.values[i] /= count[i];
  return c;
}

// What is drawn of a map: paths of one shade each, and the titles of the rows.
struct Shaded {
  std::array<std::string, 2 * kShades> paths;  // positive, then negative
  std::string titles;
  double low = 0, high = 0;  // the smallest and the largest weight
};

constexpr double kSide = 300, kLeft = 34, kTop = 44;

std::string row_title(const HeatMap& m, const Cells& c, int64_t i, int64_t most, double weight) {
  return fmt::format(
      R"(<rect class="row" x="{:g}" y="{:.4g}" width="{:g}" height="{:.3g}"><title>{}</title></rect>)",
      kLeft,
      kTop + kSide / double(c.rows) * double(i),
      kSide,
      kSide / double(c.rows),
      escape(fmt::format(
          "{} {}: most weight on {} {}, {:.3g}",
          m.row,
          i * c.high + 1,
          m.column,
          most * c.wide + 1,
          weight
      ))
  );
}

Shaded shade(const HeatMap& m, const Cells& c) {
  Shaded s;
  const double w = kSide / double(c.columns), h = kSide / double(c.rows);
  for (const double x : c.values) {
    s.low = std::min(s.low, x);
    s.high = std::max(s.high, x);
  }
  for (int64_t i = 0; i < c.rows; ++i) {
    const double* row = &c.values[size_t(i * c.columns)];
    int64_t most = 0;
    for (int64_t j = 0; j < c.columns; ++j)
      if (std::abs(row[j]) > std::abs(row[most])) most = j;
    const double unit = m.by_row ? std::abs(row[most]) : std::max(s.high, -s.low);
    for (int64_t j = 0; j < c.columns; ++j) {
      const int shade = unit > 0 ? int(std::ceil(std::abs(row[j]) / unit * kShades)) : 0;
      if (shade == 0) continue;
      s.paths[size_t(shade - 1 + (row[j] < 0 ? kShades : 0))] += fmt::format(
          "M{:.4g} {:.4g}h{:.3g}v{:.3g}h-{:.3g}z",
          kLeft + w * double(j),
          kTop + h * double(i),
          w,
          h,
          w
      );
    }
    s.titles += row_title(m, c, i, most, row[most]);
  }
  return s;
}

// Shades from the most negative to the most positive weight, with the numbers they stand for.
std::string colour_bar(const HeatMap& m, const Shaded& s, double y) {
  const double largest = std::max(s.high, -s.low);
  const bool negative = s.low<0, positive = s.high> 0 || !negative;
  const int first = negative ? -kShades : 0, last = positive ? kShades : 0;
  const double w = kSide / double(last - first);
  std::string text;
  for (int shade = first; shade < last; ++shade) {
    const int depth = shade < 0 ? -shade : shade + 1;
    text += fmt::format(
        R"(<rect class="{}" fill-opacity="{:.3g}" x="{:.2f}" y="{:g}" width="{:.2f}" height="10"/>)",
        shade < 0 ? "minus" : "plus",
        double(depth) / kShades,
        kLeft + w * double(shade - first),
        y,
        w
    );
  }
  const auto end = [&](double sign) {
    return m.by_row ? std::string(sign < 0 ? "-1" : "1") : fmt::format("{:.3g}", sign * largest);
  };
  text += text_at(kLeft, y + 24, "start", "soft", negative ? end(-1) : "0");
  text += text_at(kLeft + kSide, y + 24, "end", "soft", positive ? end(1) : "0");
  const std::string middle = m.by_row ? "weight / largest of its row" : "weight";
  return text + text_at(kLeft + kSide / 2, y + 24, "middle", "soft", middle);
}

}  // namespace

std::string svg(const HeatMap& m) {
  HORNER_CHECK(
      m.rows > 0 && m.columns > 0 && int64_t(m.values.size()) == m.rows * m.columns,
      "[heat map] values must be (rows,columns) = ({},{}), got {} numbers",
      m.rows,
      m.columns,
      m.values.size()
  );
  const Shaded s = shade(m, blocks(m));
  std::string text = open_picture(m.title, kTop + kSide + 44, 360, "map");
  text += text_at(0, 16, "start", "head", m.title);
  for (size_t i = 0; i < s.paths.size(); ++i) {
    if (s.paths[i].empty()) continue;
    text += fmt::format(
        R"(<path class="{}" fill-opacity="{:.3g}" d="{}"/>)",
        i < kShades ? "plus" : "minus",
        double(i % kShades + 1) / kShades,
        s.paths[i]
    );
  }
  text += fmt::format(
      R"(<rect x="{0:g}" y="{1:g}" width="{2:g}" height="{2:g}" fill="none" class="axis"/>)",
      kLeft,
      kTop,
      kSide
  );
  text += s.titles;
  text += text_at(kLeft, kTop - 8, "start", "soft", fmt::format("{} = 1", m.column));
  text += text_at(kLeft + kSide, kTop - 8, "end", "soft", std::to_string(m.columns));
  text += text_at(kLeft - 6, kTop + 10, "end", "soft", "1");
  text += text_at(kLeft - 6, kTop + kSide / 2, "end", "soft", m.row);
  text += text_at(kLeft - 6, kTop + kSide, "end", "soft", std::to_string(m.rows));
  return text + colour_bar(m, s, kTop + kSide + 12) + "</svg>";
}

}  // namespace horner
