#include "report/explain_page.h"

#include <fmt/format.h>

#include <cmath>

#include "core/number.h"
#include "report/explain_charts.h"
#include "report/maths.h"

namespace horner {
namespace {

std::string tokens(double half_life) {
  return std::isfinite(half_life) ? fmt::format("{:.3g} tokens", half_life) : "infinite";
}

Section equation_section(const Explanation& e) {
  SortTable settings{{"setting", "value"}, {}};
  const auto add = [&](const std::string& name, const Json& x) {
    settings.rows.push_back({{name}, {x.is_string() ? x.get<std::string>() : to_line(x)}});
  };
  for (const auto& [name, value] : e.settings.items()) {
    if (value.is_object()) {
      for (const auto& [inner, x] : value.items()) add(name + "." + inner, x);
    } else {
      add(name, value);
    }
  }
  SortTable held{{"parameter", "shape", "numbers"}, {}};
  for (const Explanation::Parameter& p : e.parameters) {
    int64_t count = 1;
    for (const int64_t n : p.shape) count *= n;
    held.rows.push_back(
        {{p.name},
         {fmt::format("{}", fmt::join(p.shape, " x "))},
         {std::to_string(count), double(count)}}
    );
  }
  std::string body = maths(e.equation);
  body += facts(
      {{"paper", "arXiv:" + e.paper},
       {"op", e.op},
       {"parameters", std::to_string(e.parameter_count)}}
  );
  for (const std::string& line : e.voids) body += paragraph("Without effect: " + line + ".");
  return {
      "What it computes",
      body + folded("Its parameters", sortable(held)) + folded("Its settings", sortable(settings))};
}

Section state_section(const Explanation& e) {
  SortTable sizes{{"T", {"state", Better::lower}, {"key/value cache", Better::lower}}, {}};
  for (const Explanation::Size& s : e.sizes)
    sizes.rows.push_back(
        {{std::to_string(s.T), double(s.T)},
         cell_bytes(double(s.bytes)),
         cell_bytes(double(s.cache))}
    );
  const std::string caption =
      e.crossover > 0
          ? fmt::format(
                "Crossover: the state is smaller than the cache from T = {} on.", e.crossover
            )
          : "The state grows with the sequence: no crossover.";
  return {"What it keeps", figure(state_chart(e), caption) + sortable(sizes)};
}

Section map_section(const Explanation& e) {
  std::string body = figure(
      map_picture(e, "First head"),
      "Row t: the weights with which token t reads the values of tokens s. Blue is positive, "
      "orange negative."
  );
  body += paragraph(fmt::format(
      "Rows sum to {:.3f} .. {:.3f}; {:.1f} % of the mass is negative.",
      e.row_sum_low,
      e.row_sum_high,
      100 * e.negative_mass
  ));
  return {"Who reads whom", body};
}

Section forgetting_section(const Explanation& e) {
  std::string body = paragraph(fmt::format(
      "Eigenvalues {:.3f} .. {:.3f}, median {:.3f}, {:.0f} % above 1; median half-life {}; {}.",
      e.transition.front(),
      e.transition.back(),
      e.transition[2],
      100 * e.growing,
      tokens(e.half_life),
      e.consequence
  ));
  body += figure(spectrum_chart(e));
  const Chart lives = half_life_chart(e);
  if (!lives.series[0].points.empty())
    body += figure(
        lives,
        "Eigenvalues at or below 0 forget at once and have none; those at or above 1 never do."
    );
  return {"How it forgets", body};
}

Section system_section(const Explanation& e) {
  std::vector<std::string> maps;
  for (const Explanation::Matrix& m : e.matrices) {
    HeatMap map{m.name + " of each token", "t", "f", m.rows, m.columns, m.values};
    map.by_row = false;
    maps.push_back(figure(map));
  }
  return {
      "As a dynamical system",
      maths("h_t = Lambda_t h_{t-1} + B_t u_t, y_t = C_t h_t + D_t u_t") +
          paragraph(fmt::format(
              "The state h has F = {} numbers per value channel. First head{}.",
              e.F,
              e.F > 64 ? ", the first 64 of them" : ""
          )) +
          side_by_side(maps)};
}

Section confusion_section(const Explanation& e) {
  SortTable heads{
      {"head", {"pairs confused", Better::lower}, {"tokens with such a partner", Better::lower}},
      {}};
  for (size_t h = 0; h < e.confusion.heads.size(); ++h) {
    const Confusion::Head& head = e.confusion.heads[h];
    heads.rows.push_back(
        {{std::to_string(h), double(h)},
         {fmt::format("{:.2f} %", 100 * head.pairs), head.pairs},
         {fmt::format("{:.2f} %", 100 * head.tokens), head.tokens}}
    );
  }
  return {
      "Are different queries told apart?",
      paragraph(fmt::format(
          "Two tokens are confused when their weights over the same tokens differ by at most 0.1 % "
          "while they themselves differ by more than 10 %.{} The most similar other token "
          "differs by {:.3g} %.",
          std::isnan(e.confusion.doubled)
              ? ""
              : fmt::format(
                    " Queries twice as long {}.",
                    e.confusion.doubled < 1e-9
                        ? "get the same weights: the length of a query is lost"
                        : fmt::format("change them by {:.3g} %", 100 * e.confusion.doubled)
                ),
          100 * e.confusion.nearest
      )) + sortable(heads)};
}

}  // namespace

std::string explain_verdict(const Explanation& e) {
  std::string text;
  if (e.crossover > 0) {
    text = fmt::format(
        "{} keeps {} of state, however long the sequence: less than a key/value cache from T = {} "
        "on.",
        e.mixer,
        short_bytes(double(e.sizes.back().bytes)),
        e.crossover
    );
  } else if (!e.sizes.empty()) {
    text = fmt::format(
        "{} keeps more the longer the sequence: {} at T = {}.",
        e.mixer,
        short_bytes(double(e.sizes.back().bytes)),
        e.sizes.back().T
    );
  } else {
    text = e.mixer + " reads in both directions: it has no state to carry on.";
  }
  if (!e.transition.empty())
    text += fmt::format(" Median half-life {}; {}.", tokens(e.half_life), e.consequence);
  return text;
}

std::vector<NamedPicture> explain_pictures(const Explanation& e) {
  std::vector<NamedPicture> list = {{"map", svg(map_picture(e, e.mixer + ": who reads whom"))}};
  if (!e.sizes.empty()) list.push_back({"state", svg(state_chart(e))});
  if (!e.spectrum.empty()) list.push_back({"eigenvalues", svg(spectrum_chart(e))});
  if (!e.orders.empty()) list.push_back({"orders", svg(order_bars(e))});
  return list;
}

Page explain_page(const Explanation& e) {
  Page page{"horner explain: " + e.mixer};
  page.verdict = explain_verdict(e);
  page.sections.push_back(equation_section(e));
  if (!e.sizes.empty()) page.sections.push_back(state_section(e));
  page.sections.push_back(map_section(e));
  if (!e.spectrum.empty()) {
    page.sections.push_back(forgetting_section(e));
    page.sections.push_back(system_section(e));
  }
  if (!e.orders.empty()) {
    const std::string caption =
        "Which powers of the scores x = q.k / sqrt(K) the exponential is made of: what a series of "
        "order N leaves out are the bars beyond N.";
    page.sections.push_back({"Which Taylor orders matter", figure(order_bars(e), caption)});
  }
  if (!e.confusion.heads.empty()) page.sections.push_back(confusion_section(e));
  return page;
}

}  // namespace horner
