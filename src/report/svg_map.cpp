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

}  // namespace

std::string svg(const HeatMap& m) {
  HORNER_CHECK(
      m.rows > 0 && m.columns > 0 && int64_t(m.values.size()) == m.rows * m.columns,
      "[heat map] values must be (rows,columns) = ({},{}), got {} numbers",
      m.rows,
      m.columns,
      m.values.size()
  );
  const Cells c = blocks(m);
  const double side = 300, left = 34, top = 44, width = 360;
  const double w = side / double(c.columns), h = side / double(c.rows);
  double largest = 0;
  for (const double x : c.values) largest = std::max(largest, std::abs(x));

  std::array<std::string, 2 * kShades> paths;
  std::string titles;
  for (int64_t i = 0; i < c.rows; ++i) {
    const double* row = &c.values[size_t(i * c.columns)];
    int64_t most = 0;
    for (int64_t j = 0; j < c.columns; ++j)
      if (std::abs(row[j]) > std::abs(row[most])) most = j;
    const double unit = m.by_row ? std::abs(row[most]) : largest;
    for (int64_t j = 0; j < c.columns; ++j) {
      const int shade = unit > 0 ? int(std::ceil(std::abs(row[j]) / unit * kShades)) : 0;
      if (shade == 0) continue;
      paths[size_t(shade - 1 + (row[j] < 0 ? kShades : 0))] += fmt::format(
          "M{:.4g} {:.4g}h{:.3g}v{:.3g}h-{:.3g}z",
          left + w * double(j),
          top + h * double(i),
          w,
          h,
          w
      );
    }
    titles += fmt::format(
        R"(<rect class="row" x="{:g}" y="{:.4g}" width="{:g}" height="{:.3g}"><title>{}</title></rect>)",
        left,
        top + h * double(i),
        side,
        h,
        escape(fmt::format(
            "{} {}: most weight on {} {}, {:.3g}",
            m.row,
            i * c.high + 1,
            m.column,
            most * c.wide + 1,
            row[most]
        ))
    );
  }

  std::string text = open_picture(m.title, top + side + 34, width);
  text += text_at(0, 16, "start", "head", m.title);
  for (size_t shade = 0; shade < paths.size(); ++shade) {
    if (paths[shade].empty()) continue;
    text += fmt::format(
        R"(<path class="{}" fill-opacity="{:.3g}" d="{}"/>)",
        shade < kShades ? "plus" : "minus",
        double(shade % kShades + 1) / kShades,
        paths[shade]
    );
  }
  text += fmt::format(
      R"(<rect x="{:g}" y="{:g}" width="{:g}" height="{:g}" fill="none" class="axis"/>)",
      left,
      top,
      side,
      side
  );
  text += titles;
  text += text_at(left, top - 8, "start", "soft", fmt::format("{} = 1", m.column));
  text += text_at(left + side, top - 8, "end", "soft", std::to_string(m.columns));
  text += text_at(left - 6, top + 10, "end", "soft", "1");
  text += text_at(left - 6, top + side / 2, "end", "soft", m.row);
  text += text_at(left - 6, top + side, "end", "soft", std::to_string(m.rows));
  text += text_at(
      left,
      top + side + 20,
      "start",
      "soft",
      m.by_row ? "full colour: the largest of the row" : fmt::format("full colour: {:.3g}", largest)
  );
  return text + "</svg>";
}

}  // namespace horner
