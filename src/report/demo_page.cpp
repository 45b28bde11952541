#include "report/demo_page.h"

#include <cmath>
#include <numbers>

#include "core/number.h"
#include "report/equations.h"
#include "report/palette.h"

namespace horner {
namespace {

std::vector<int> colours(const DemoResult& r) {
  std::vector<std::string> names;
  for (const DemoMixer& m : r.mixers) names.push_back(m.mixer);
  return mixer_colours(names);
}

Chart loss_chart(const DemoResult& r) {
  Chart chart{"Loss while they learn", {"step"}, {"nats per byte, lower is better"}};
  const std::vector<int> colour = colours(r);
  for (size_t i = 0; i < r.mixers.size(); ++i) {
    Line train{r.mixers[i].mixer + ", training"}, valid{r.mixers[i].mixer};
    train.marks = false;
    train.dashed = true;
    train.colour = valid.colour = colour[i];
    for (const TrainResult::Point& p : r.mixers[i].result.curve) {
      if (std::isfinite(p.loss)) train.points.push_back({double(p.step), p.loss});
      if (std::isfinite(p.valid))  // the task's metric is bits per byte
        valid.points.push_back({double(p.step), p.valid * std::numbers::ln2});
    }
    chart.series.push_back(std::move(valid));
    chart.series.push_back(std::move(train));
  }
  return chart;
}

// One line per mixer over T.
Chart chart_over_length(
    const DemoResult& r, const std::string& title, Axis y, double (*value)(const DemoSpeed&)
) {
  Chart chart{title, {"tokens read before, T"}, std::move(y)};
  chart.x.log = true;
  chart.x.base = 2;
  const std::vector<int> colour = colours(r);
  for (size_t i = 0; i < r.mixers.size(); ++i) {
    Line line{r.mixers[i].mixer};
    line.colour = colour[i];
    for (const DemoSpeed& s : r.mixers[i].speeds) line.points.push_back({double(s.T), value(s)});
    chart.series.push_back(std::move(line));
  }
  return chart;
}

std::string samples_table(const DemoResult& r) {
  std::string body;
  size_t most = 0;
  for (const DemoMixer& m : r.mixers) most = std::max(most, m.samples.size());
  for (size_t i = 0; i < most; ++i) {
    std::vector<std::string> pieces;
    for (const DemoMixer& m : r.mixers) {
      if (i >= m.samples.size()) continue;
      const DemoSample& s = m.samples[i];
      pieces.push_back(fmt::format(
          "<div>{}{}</div>",
          paragraph(fmt::format("{}, step {}", m.mixer, s.step)),
          code(r.options.prompt + s.text)
      ));
    }
    body += side_by_side(pieces);
  }
  return body;
}

std::string what_is_shown(const DemoResult& r) {
  std::vector<std::string> names;
  for (const DemoMixer& m : r.mixers) names.push_back(m.mixer);
  return fmt::format(
      "Small models, equal but for the mixer ({}), learn the same text byte by byte; the page "
      "shows how well they learn it, what they write, and what a longer text costs them.",
      fmt::join(names, ", ")
  );
}

// The beginning of the text: what is read, and below it what must be said.
std::string excerpt_of(const DemoResult& r) {
  std::vector<TokenBox> all;
  for (const char c : r.excerpt) {
    const auto byte = static_cast<unsigned char>(c);
    all.push_back(
        {c == '\n'                     ? "\u23ce"
         : c == ' '                    ? "\u2423"
         : byte < 0x20 || byte >= 0x7f ? fmt::format("\\x{:02x}", byte)
                                       : std::string(1, c)}
    );
  }
  for (size_t t = 0; t + 1 < all.size(); ++t) all[t].below = all[t + 1].text;
  if (all.empty()) return "";
  return boxes(
      all,
      "The beginning of the text, a box per byte. Below it, in green: the next byte, which the "
      "model "
      "must say there."
  );
}

// Why two mixers may differ more than their sums do: not every mixer has the same loops.
std::string computed_by(const DemoResult& r) {
  std::string text = "Not every mixer has loops of its own.";
  for (const DemoMixer& m : r.mixers) text += fmt::format(" {}: {}.", m.mixer, m.computed_by);
  return text;
}

}  // namespace

std::string demo_verdict(const DemoResult& r) {
  std::string text;
  for (const DemoMixer& m : r.mixers) {
    const DemoSpeed& last = m.speeds.back();
    text += fmt::format(
        "{}{} has a loss of {:.3f} nats per byte (less is better). After {} tokens it keeps {} and "
        "writes {} tokens/s.",
        text.empty() ? "" : " ",
        m.mixer,
        m.result.valid.value("loss"),
        last.T,
        short_bytes(double(last.state_bytes)),
        short_count(last.tokens_per_second)
    );
  }
  return text + " One seed and few steps give a first look; ./horner compare decides.";
}

std::vector<std::string> demo_next(const DemoResult& r) {
  return {
      fmt::format("./horner generate {} --prompt JULIET:", r.mixers.back().result.folder),
      "./horner demo --mixers softmax,mlstm --out runs/demo_mlstm",
      "./horner compare",
      "./horner list",
  };
}

Page demo_page(const DemoResult& r) {
  Page page{"horner demo"};
  page.verdict = demo_verdict(r);
  page.sections.push_back({"What this page shows", paragraph(what_is_shown(r)) + excerpt_of(r)});
  std::vector<NamedMixer> mixers;
  for (const DemoMixer& m : r.mixers)
    mixers.push_back({m.mixer, m.mixer, m.result.options.model.D});
  page.sections.push_back(
      {"What they learned",
       figure(
           loss_chart(r),
           "Nats per byte of text; solid: text that was not learned, dashed: training."
       ) + equations(mixers)}
  );
  page.sections.push_back({"What they write", samples_table(r)});
  Axis bytes{"bytes of state, lower is better"}, speed{"tok/s, higher is better"};
  bytes.log = bytes.bytes = speed.log = true;
  bytes.base = 2;
  page.sections.push_back(
      {"What it costs to go on",
       figure(
           chart_over_length(
               r,
               "State of one stream",
               bytes,
               [](const DemoSpeed& s) { return double(s.state_bytes); }
           ),
           "A key/value cache grows with every token; a recurrent state does not."
       ) +
           figure(
               chart_over_length(
                   r,
                   "Speed of writing",
                   speed,
                   [](const DemoSpeed& s) { return s.tokens_per_second; }
               ),
               "One stream after T tokens: the fastest of four groups of 8 tokens. " +
                   computed_by(r)
           )}
  );
  page.sections.push_back(
      {"What to try next", code(fmt::format("{}", fmt::join(demo_next(r), "\n")))}
  );
  return page;
}

}  // namespace horner
