#include "report/model_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/number.h"

namespace horner {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string name_of(const std::string& path) { return std::filesystem::path(path).filename(); }

// One number of every head; layers may have fewer heads than others.
HeadGrid grid_of(
    const ModelExplanation& e,
    const std::string& title,
    const std::string& unit,
    double (*value)(const HeadMeasures&)
) {
  HeadGrid g{title, unit, e.layers};
  for (const HeadMeasures& h : e.heads) g.heads = std::max(g.heads, h.head + 1);
  g.values.assign(size_t(g.layers * g.heads), kNone);
  for (const HeadMeasures& h : e.heads) g.values[size_t(h.layer * g.heads + h.head)] = value(h);
  return g;
}

HeadGrid spanned(HeadGrid g) {  // from the smallest to the largest number
  g.low = std::numeric_limits<double>::infinity();
  g.high = -g.low;
  for (const double x : g.values) {
    if (std::isnan(x)) continue;
    g.low = std::min(g.low, x);
    g.high = std::max(g.high, x);
  }
  return g;
}

HeadGrid distance_grid(const ModelExplanation& e) {
  HeadGrid g = spanned(grid_of(e, "Mean distance", " tokens", [](const HeadMeasures& h) {
    return h.distance;
  }));
  g.low = 0;
  return g;
}

HeadGrid entropy_grid(const ModelExplanation& e) {
  HeadGrid g =
      spanned(grid_of(e, "Entropy", " nats", [](const HeadMeasures& h) { return h.entropy; }));
  g.low = 0;
  return g;
}

HeadGrid outside_grid(const ModelExplanation& e) {
  HeadGrid g = spanned(grid_of(e, "Weight beyond the window", " %", [](const HeadMeasures& h) {
    return 100 * (1 - h.inside);
  }));
  g.low = 0;
  return g;
}

HeadGrid first_grid(const ModelExplanation& e) {
  HeadGrid g = grid_of(
      e,
      fmt::format("Weight of the first {} tokens", e.sight.sinks),
      " %",
      [](const HeadMeasures& h) { return 100 * h.first; }
  );
  g.high = 100;
  return g;
}

// Orders above all that were tried count as the next one.
HeadGrid order_grid(const ModelExplanation& e, bool centred) {
  constexpr double kMost = 2 * kSeriesOrders;
  HeadGrid g = grid_of(
      e,
      centred ? "Order that suffices, centred keys" : "Order that suffices",
      "",
      centred
          ? [](const HeadMeasures& h
            ) { return double(HeadMeasures::sufficient(h.centred_series).value_or(int64_t(kMost))); }
          : [](const HeadMeasures& h
            ) { return double(HeadMeasures::sufficient(h.series).value_or(int64_t(kMost))); }
  );
  g.high = kMost;
  g.most = fmt::format("> {}", kMost - 2);
  for (const double n : g.values)
    g.titles.push_back(
        n < kMost ? fmt::format("order {}", n) : fmt::format("more than order {}", kMost - 2)
    );
  return g;
}

double quantile(std::vector<double> list, double share) {
  std::sort(list.begin(), list.end());
  return list[size_t(share * double(list.size() - 1) + 0.5)];
}

// The median head with a band from the first to the third quartile.
Line quartiles(
    const ModelExplanation& e,
    const std::string& name,
    int colour,
    std::vector<double> HeadMeasures::*numbers,
    double (*x)(size_t)
) {
  Line line{.name = name, .band = true, .colour = colour};
  for (size_t i = 0; i < (e.heads.front().*numbers).size(); ++i) {
    std::vector<double> values;
    for (const HeadMeasures& h : e.heads) values.push_back((h.*numbers)[i]);
    Point p{x(i), quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75)};
    p.title = fmt::format(
        "{} at {:g}: median {:.3f}, quartiles {:.3f} and {:.3f}", name, p.x, p.y, p.low, p.high
    );
    line.points.push_back(std::move(p));
  }
  return line;
}

Chart reach_chart(const ModelExplanation& e) {
  Chart chart{
      "How far back the weight lies", {"last tokens", true, 2}, {"share of the weight on them"}};
  chart.y.low = 0;
  chart.y.high = 1;
  chart.labels = false;
  chart.series = {quartiles(e, "median head, quartiles", 0, &HeadMeasures::reach, [](size_t i) {
    return double(int64_t{1} << i);
  })};
  return chart;
}

Chart series_chart(const ModelExplanation& e) {
  Chart chart{
      "What a power series of the exponential misplaces",
      {"order of the series"},
      {"share of the weight that it puts elsewhere, lower is better"}};
  chart.y.low = 0;
  const auto order = [](size_t i) { return 2.0 * double(i); };
  chart.series = {
      quartiles(e, "keys as they are", 1, &HeadMeasures::series, order),
      quartiles(e, "centred keys", 0, &HeadMeasures::centred_series, order)};
  return chart;
}

HeatMap map_of(const ModelExplanation& e, const TellingHead& t) {
  return {
      fmt::format("Layer {}, head {}", t.measures.layer, t.measures.head),
      "t",
      "s",
      e.T,
      e.T,
      t.map};
}

constexpr double kRests =
    0.5;  // the share of its weight from which on a head rests on the first tokens

std::string described(const TellingHead& t) {
  const HeadMeasures& h = t.measures;
  const std::optional<int64_t> order = HeadMeasures::sufficient(h.centred_series);
  return fmt::format(
      "Of all heads this one {}. Mean distance {:.1f} tokens, entropy {:.2f} nats, {:.0f} % of its "
      "weight on the first tokens{}, {:.0f} % on the token before, {:.0f} % beyond the window; "
      "with centred keys "
      "{}.",
      t.role,
      h.distance,
      h.entropy,
      100 * h.first,
      h.first >= kRests ? ": it rests on them" : "",
      100 * h.previous,
      std::abs(100 * (1 - h.inside)),  // not -0
      order ? fmt::format("order {} suffices", *order)
            : fmt::format("no order up to {} suffices", 2 * kSeriesOrders - 2)
  );
}

Section telling_section(const ModelExplanation& e) {
  std::vector<std::string> maps;
  for (const TellingHead& t : e.telling) maps.push_back(figure(map_of(e, t), described(t)));
  return {
      "The most telling heads",
      paragraph("Row t: the weights with which token t reads tokens s, in a stronger colour where "
                "it reads more. "
                "Of all heads each of these does one thing most, be it much or little. A head "
                "rests on the "
                "first tokens when they have at least half of its weight."
      ) + side_by_side(maps)};
}

Section table_section(const ModelExplanation& e) {
  SortTable table{
      {"layer",
       "head",
       "distance",
       "entropy",
       "beyond the window",
       "first tokens",
       "token before",
       "after a copy",
       "spread of scores",
       "centred",
       "order",
       "centred keys"},
      {}};
  const auto percent = [](double x) {
    return std::isnan(x) ? Cell{"-"} : Cell{fmt::format("{:.1f} %", 100 * x), x};
  };
  const auto order = [](const std::vector<double>& series) {
    const std::optional<int64_t> n = HeadMeasures::sufficient(series);
    constexpr int64_t kMost = 2 * kSeriesOrders - 2;
    return n ? Cell{std::to_string(*n), double(*n)}
             : Cell{fmt::format("> {}", kMost), double(kMost + 1)};
  };
  for (const HeadMeasures& h : e.heads)
    table.rows.push_back(
        {{std::to_string(h.layer), double(h.layer)},
         {std::to_string(h.head), double(h.head)},
         cell(h.distance),
         cell(h.entropy),
         percent(1 - h.inside),
         percent(h.first),
         percent(h.previous),
         percent(h.repeats),
         cell(h.spread),
         cell(h.centred_spread),
         order(h.series),
         order(h.centred_series)}
    );
  return {"Every head", folded(fmt::format("{} heads", e.heads.size()), sortable(table))};
}

int64_t count_within(const ModelExplanation& e, int64_t order) {
  return std::count_if(e.heads.begin(), e.heads.end(), [&](const HeadMeasures& h) {
    const std::optional<int64_t> n = HeadMeasures::sufficient(h.centred_series);
    return n && *n <= order;
  });
}

}  // namespace

std::string model_verdict(const ModelExplanation& e) {
  const auto count = [](int64_t n) { return n == 0 ? "none" : std::to_string(n); };
  const HeadMeasures m = e.mean();
  const int64_t near = std::count_if(e.heads.begin(), e.heads.end(), [](const HeadMeasures& h) {
    return h.inside >= 0.95;
  });
  return fmt::format(
      "{} reads {:.0f} tokens back on average. {:.0f} % of the weight of its {} heads lies on the "
      "last {} and the first {} tokens, at least 95 % in {}. "
      "A power series of order 2 around the mean key is close to softmax in {} of the heads, one "
      "of order 8 in {}.",
      name_of(e.model),
      m.distance,
      100 * m.inside,
      e.heads.size(),
      e.sight.window,
      e.sight.sinks,
      near == 0 ? "no head" : fmt::format("{} of the heads: there a window would do", near),
      count(count_within(e, 2)),
      count(count_within(e, 8))
  );
}

std::vector<NamedPicture> model_pictures(const ModelExplanation& e) {
  std::vector<NamedPicture> list = {
      {"distance", svg(distance_grid(e))},
      {"entropy", svg(entropy_grid(e))},
      {"beyond", svg(outside_grid(e))},
      {"first", svg(first_grid(e))},
      {"order", svg(order_grid(e, false))},
      {"centred_order", svg(order_grid(e, true))},
      {"reach", svg(reach_chart(e))},
      {"series", svg(series_chart(e))}};
  std::vector<std::string> summary = {
      svg(outside_grid(e)), svg(first_grid(e)), svg(order_grid(e, true))};
  for (size_t i = 0; i < std::min<size_t>(3, e.telling.size()); ++i)
    summary.push_back(svg(map_of(e, e.telling[i])));
  list.push_back({"heads", tiled("The heads of " + name_of(e.model), summary, 3)});
  for (const TellingHead& t : e.telling)
    list.push_back(
        {fmt::format("layer_{}_head_{}", t.measures.layer, t.measures.head), svg(map_of(e, t))}
    );
  return list;
}

Page model_page(const ModelExplanation& e) {
  Page page{"The attention heads of " + name_of(e.model)};
  page.verdict = model_verdict(e);
  if (!e.skipped.empty())
    page.warnings.push_back(
        fmt::format("Layers that are not softmax attention: {}.", fmt::join(e.skipped, ", "))
    );
  page.sections.push_back(
      {"What each head does",
       paragraph(fmt::format(
           "A row is a layer, a column a head. Means over {} tokens of {}. The window: the last {} "
           "tokens and the first {}.",
           e.pieces * e.T,
           name_of(e.text),
           e.sight.window,
           e.sight.sinks
       )) +
           side_by_side(
               {figure(distance_grid(e)),
                figure(outside_grid(e)),
                figure(entropy_grid(e)),
                figure(first_grid(e)),
                figure(order_grid(e, false)),
                figure(order_grid(e, true))}
           ) +
           paragraph(fmt::format(
               "An order suffices when the series puts at most {:.0f} % of a query's weight "
               "elsewhere "
               "than softmax does, on average. Centred keys: the mean key is taken from every key, "
               "which changes the series but not softmax.",
               100 * kSeriesTolerance
           ))}
  );
  page.sections.push_back(telling_section(e));
  page.sections.push_back(
      {"How far the weight reaches",
       figure(reach_chart(e), "Line: the median of all heads. Band: half of the heads.")}
  );
  page.sections.push_back(
      {"Which orders matter",
       figure(series_chart(e), "Even orders only: an odd one can give negative weights.")}
  );
  page.sections.push_back(table_section(e));
  return page;
}

}  // namespace horner
