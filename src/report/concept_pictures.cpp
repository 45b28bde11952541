#include "report/concept_pictures.h"

#include <cmath>

#include "report/drawing.h"

namespace horner {
namespace {

constexpr int kTokens = 8, kChunk = 4;
constexpr double kCell = 24, kSide = kCell * kTokens, kTop = 74;

std::string box(double x, double y, double w, double h, const char* kind, double opacity) {
  return fmt::format(
      R"(<rect class="{}" fill-opacity="{:g}" x="{:g}" y="{:g}" width="{:g}" height="{:g}"/>)",
      kind,
      opacity,
      x,
      y,
      w,
      h
  );
}

// One form: the T x T weights of which it computes some one by one, and the states that stand for the others.
class FormDrawing {
 public:
  FormDrawing(double left, const char* name, const char* cost) : left_(left) {
    text_ = text_at(left, 44, "start", "head", name) + text_at(left, 62, "start", "soft", cost);
  }
  void weight(int t, int s) {
    text_ += box(left_ + kCell * s + 1, kTop + kCell * t + 1, kCell - 2, kCell - 2, "plus", .85);
  }
  // The tokens before s stand in the state that row t reads.
  void state(int t, int rows, int s) {
    if (s == 0) return;
    text_ += box(left_ + 1, kTop + kCell * t + 1, kCell * s - 2, kCell * rows - 2, "minus", .45);
  }
  std::string picture() const {
    std::string grid;
    for (int i = 0; i <= kTokens; ++i) {
      const double at = kCell * i;
      grid += line_at(left_, kTop + at, left_ + kSide, kTop + at, "grid");
      grid += line_at(left_ + at, kTop, left_ + at, kTop + kSide, "grid");
    }
    return grid + text_;
  }

 private:
  double left_;
  std::string text_;
};

std::string legend(double y) {
  return box(0, y - 10, 12, 12, "plus", .85) +
         text_at(18, y, "start", "soft", "a weight q.k that is computed") +
         box(250, y - 10, 12, 12, "minus", .45) +
         text_at(268, y, "start", "soft", "tokens that are read through the state, all at once");
}

}  // namespace

Chart series_chart() {
  Chart chart{
      "The weight of a token: e^x, and its series cut off at an order",
      {.label = "score x = q.k / sqrt K", .low = -3, .high = 3},
      {.label = "weight", .low = -2, .high = 12}};
  const auto add = [&](const std::string& name, const auto& weight, int colour, bool dashed) {
    Line line{.name = name, .marks = false, .dashed = dashed, .colour = colour};
    for (double x = -3; x <= 3.001; x += 0.1) {
      if (const double y = weight(x); y >= -2 && y <= 12) line.points.push_back({x, y});
    }
    chart.series.push_back(line);
  };
  add(
      "softmax: e^x", [](double x) { return std::exp(x); }, 0, false
  );
  for (const auto& [order, colour] : {std::pair{0, 1}, {1, 4}, {2, 3}, {4, 2}}) {
    const auto series = [N = order](double x) {
      double sum = 0, term = 1;
      for (int n = 0; n <= N; term *= x / ++n) sum += term;
      return sum;
    };
    add(fmt::format("order {}", order), series, colour, true);
  }
  chart.legend = true;
  chart.labels = false;
  return chart;
}

std::string forms_picture() {
  const double gap = 60, step = kSide + gap;
  FormDrawing parallel(0, "parallel", "all pairs: time T^2, no state");
  FormDrawing recurrent(step, "recurrent", "token by token: time T, one state");
  FormDrawing chunked(2 * step, "chunked", "pairs in a chunk, a state between");
  for (int t = 0; t < kTokens; ++t) {
    for (int s = 0; s <= t; ++s) parallel.weight(t, s);
    recurrent.state(t, 1, t);
    recurrent.weight(t, t);
    for (int s = t / kChunk * kChunk; s <= t; ++s) chunked.weight(t, s);
  }
  chunked.state(kChunk, kTokens - kChunk, kChunk);
  const std::string title = "Three forms of one recurrence: row t reads tokens s";
  return open_picture(title, kTop + kSide + 40, Width::wide) + title_at_top({title}) +
         parallel.picture() + recurrent.picture() + chunked.picture() + legend(kTop + kSide + 26) +
         "</svg>";
}

Chart capacity_chart(const std::vector<Capacity>& all) {
  Chart chart{
      fmt::format("What a state can hold: K = V = {}", kCapacityDim),
      {"pairs that were read", true, 2},
      {.label = "share recalled, higher is better", .low = 0, .high = 1}};
  std::vector<std::string> mixers;  // that each op stands for
  for (const Capacity& c : all)
    mixers.push_back(
        c.name.starts_with("series") ? "taylor"
        : c.name == "delta rule"     ? "deltanet"
                                     : c.name
    );
  const std::vector<int> colours = mixer_colours(mixers);
  for (size_t i = 0; i < all.size(); ++i) {
    const Capacity& c = all[i];
    const std::string held = c.numbers > 0 ? fmt::format(" ({} numbers)", c.numbers) : " (grows)";
    Line line{.name = c.name + held, .colour = colours[i]};
    for (const auto& [n, share] : c.right) line.points.push_back({double(n), share});
    chart.series.push_back(line);
  }
  chart.legend = true;
  chart.labels = false;
  return chart;
}

std::vector<ConceptPicture> concept_pictures(const std::vector<Capacity>& capacity) {
  return {
      {"series", svg(series_chart())},
      {"forms", forms_picture()},
      {"capacity", svg(capacity_chart(capacity))}};
}

}  // namespace horner
