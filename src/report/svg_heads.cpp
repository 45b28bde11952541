// A grid of layers and heads. Every cell is a mark with a title, so a pointer reads each head's number.
#include <cmath>

#include "core/check.h"
#include "report/drawing.h"

namespace horner {
namespace {

constexpr double kSide = 300, kLeft = 44, kTop = 44;
constexpr double kPale = 0.06;  // opacity of the smallest number, so that its cell is seen
constexpr int kSteps = 12;      // of the colour bar

constexpr double kRounding = 1e-6;  // far below any unit shown here: it is 0, not 1.6e-17
std::string short_number(double x) {
  return fmt::format("{:.3g}", std::abs(x) < kRounding ? 0 : x);
}

double opacity(const HeadGrid& g, double value) {
  const double span = g.high - g.low;
  const double share = span > kRounding ? (value - g.low) / span : g.high > kRounding ? 1 : 0;
  return kPale + (1 - kPale) * std::clamp(share, 0.0, 1.0);
}

std::string cell_at(const HeadGrid& g, size_t i, double width, double height) {
  const int64_t layer = int64_t(i) / g.heads, head = int64_t(i) % g.heads;
  const std::string told = g.titles.empty() ? short_number(g.values[i]) + g.unit : g.titles[i];
  return fmt::format(
      R"(<rect class="cell" fill-opacity="{:.3g}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>)",
      opacity(g, g.values[i]),
      kLeft + width * double(head),
      kTop + height * double(layer),
      width,
      height,
      escape(fmt::format("layer {}, head {}: {}", layer, head, told))
  );
}

std::string colour_bar(const HeadGrid& g, double y) {
  const double w = kSide / kSteps;
  std::string text;
  for (int i = 0; i < kSteps; ++i) {
    text += fmt::format(
        R"(<rect class="plus" fill-opacity="{:.3g}" x="{:.2f}" y="{:g}" width="{:.2f}" height="10"/>)",
        kPale + (1 - kPale) * i / (kSteps - 1),
        kLeft + w * i,
        y,
        w
    );
  }
  text += text_at(kLeft, y + 24, "start", "soft", short_number(g.low));
  text += text_at(
      kLeft + kSide, y + 24, "end", "soft", g.most.empty() ? short_number(g.high) + g.unit : g.most
  );
  return text;
}

}  // namespace

std::string svg(const HeadGrid& g) {
  HORNER_CHECK(
      g.layers > 0 && g.heads > 0 && int64_t(g.values.size()) == g.layers * g.heads &&
          (g.titles.empty() || g.titles.size() == g.values.size()),
      "[head grid] values and titles must be (layers,heads) = ({},{}), got {} and {}",
      g.layers,
      g.heads,
      g.values.size(),
      g.titles.size()
  );
  const double width = kSide / double(g.heads);
  const double height = std::clamp(kSide / double(g.layers), 4.0, 24.0);
  const double tall = height * double(g.layers);
  std::string text = open_picture(g.title, kTop + tall + 44, 360, "map");
  text += text_at(0, 16, "start", "head", g.title);
  for (size_t i = 0; i < g.values.size(); ++i) {
    if (!std::isnan(g.values[i])) text += cell_at(g, i, width, height);
  }
  text += fmt::format(
      R"(<rect x="{:g}" y="{:g}" width="{:g}" height="{:g}" fill="none" class="axis"/>)",
      kLeft,
      kTop,
      kSide,
      tall
  );
  text += text_at(kLeft, kTop - 8, "start", "soft", "head 0");
  if (g.heads > 1)
    text += text_at(kLeft + kSide, kTop - 8, "end", "soft", std::to_string(g.heads - 1));
  text += text_at(kLeft - 6, kTop + 11, "end", "soft", "0");
  if (tall >= 60) text += text_at(kLeft - 6, kTop + tall / 2, "end", "soft", "layer");
  if (g.layers > 1)
    text += text_at(kLeft - 6, kTop + tall, "end", "soft", std::to_string(g.layers - 1));
  return text + colour_bar(g, kTop + tall + 12) + "</svg>";
}

}  // namespace horner
