// horner explain MIXER: what it computes, holds, forgets and reads, as text or JSON. explain --model: every head of a model.
#include "lab/explain/explain.h"

#include <unistd.h>

#include <optional>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/check.h"
#include "core/file.h"
#include "core/number.h"
#include "core/origin.h"
#include "report/concept_pictures.h"
#include "report/explain_page.h"
#include "report/model_page.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace horner {
namespace {

// The map of the first head, at most 32 tokens wide: darker where a token reads more.
std::string picture(const Explanation& e) {
  static const char* const kShades[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
  const int64_t step = std::max<int64_t>(1, (e.T + 31) / 32);
  std::string text;
  for (int64_t t = 0; t < e.T; t += step) {
    double largest = 0;
    for (int64_t s = 0; s < e.T; ++s)
      largest = std::max(largest, std::abs(e.map[size_t(t * e.T + s)]));
    text += "  ";
    for (int64_t s = 0; s < e.T; s += step) {
      const double share = std::abs(e.map[size_t(t * e.T + s)]) / std::max(largest, 1e-300);
      text += kShades[std::min<int>(8, int(share * 9))];
    }
    text += "\n";
  }
  return text;
}

// A paragraph, broken where the terminal ends.
template <class... T>
void say(fmt::format_string<T...> format, T&&... values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  fmt::print("{}\n", wrapped(text, terminal_width(STDOUT_FILENO)));
}

void print(const Explanation& e) {
  say("{}  (arXiv:{})", e.mixer, e.paper);
  fmt::print("{}\n\n", wrapped("  " + e.equation, terminal_width(STDOUT_FILENO), 4));
  for (const std::string& line : e.voids) say("Void: {}.", line);
  Table held{{"parameter", "shape"}, {}};
  for (const auto& p : e.parameters)
    held.rows.push_back({p.name, fmt::format("{}", fmt::join(p.shape, " x "))});
  fmt::print("{}\n{} parameters.\n\n", fitted(held), e.parameter_count);
  if (!e.sizes.empty()) {
    Table sizes{{"T", "state", "key/value cache"}, {}};
    for (const auto& s : e.sizes)
      sizes.rows.push_back(
          {std::to_string(s.T), short_bytes(double(s.bytes)), short_bytes(double(s.cache))}
      );
    fmt::print("{}", fitted(sizes));
    if (e.crossover > 0) {
      fmt::print("The state is the smaller one from T = {} on.\n\n", e.crossover);
    } else {
      fmt::print("The state grows with T.\n\n");
    }
    say("h_t = Lambda_t h_(t-1) + B_t u_t, y_t = C_t h_t + D_t u_t by `{}`, F = {} per value "
        "channel.",
        e.op,
        e.F);
    say("Lambda: {:.3f} least, {:.3f} {:.3f} {:.3f} quartiles, {:.3f} most; {:.0f} % above 1; "
        "median half-life {:.1f} tokens.",
        e.transition[0],
        e.transition[1],
        e.transition[2],
        e.transition[3],
        e.transition[4],
        100 * e.growing,
        e.half_life);
    say("{}.", e.consequence);
    fmt::print("\n");
  }
  if (!e.orders.empty()) {
    std::string shares;
    for (size_t n = 0; n < e.orders.size(); ++n) {
      if (n <= 10 || e.orders[n] >= 1e-3) shares += fmt::format(" {:.3f}", e.orders[n]);
    }
    say("Share of order 0, 1, 2, .. of the exponential:{}", shares);
  }
  say("Rows of the map sum to {:.3f} .. {:.3f}; {:.1f} % of its mass is negative. Who reads whom, "
      "first head:",
      e.row_sum_low,
      e.row_sum_high,
      100 * e.negative_mass);
  fmt::print("{}", picture(e));
  if (e.confusion.heads.empty()) return;
  double pairs = 0;
  for (const auto& head : e.confusion.heads) pairs += head.pairs / double(e.confusion.heads.size());
  const std::string doubled = std::isnan(e.confusion.doubled)
                                  ? ""
                                  : fmt::format(
                                        "; queries twice as long change their weights by {:.3g} %",
                                        100 * e.confusion.doubled
                                    );
  say("{:.2f} % of pairs of different tokens get the same weights{}.", 100 * pairs, doubled);
}

void write(
    const Json& json,
    const std::vector<NamedPicture>& pictures,
    Page page,
    const Origin& origin,
    const std::string& folder
) {
  make_folder(folder + "/plots");
  write_file(folder + "/explain.json", json.dump(2) + "\n");
  for (const auto& [name, picture] : pictures)
    write_file(folder + "/plots/" + name + ".svg", svg_file(picture));
  page.origin = origin;
  write_file(folder + "/explain.html", html(page));
}

std::string order_of(const std::vector<double>& series) {
  const std::optional<int64_t> n = HeadMeasures::sufficient(series);
  return n ? std::to_string(*n) : fmt::format("> {}", 2 * kSeriesOrders - 2);
}

// A line for each layer: the mean over its heads; then the heads that the page draws.
void print(const ModelExplanation& e) {
  Table table{{"layer", "distance", "entropy", "in window", "first", "order", "centred keys"}, {}};
  const auto row = [&](const std::string& name, const ModelExplanation& part) {
    const HeadMeasures m = part.mean();
    table.rows.push_back(
        {name,
         fmt::format("{:.1f}", m.distance),
         fmt::format("{:.2f}", m.entropy),
         fmt::format("{:.1f} %", 100 * m.inside),
         fmt::format("{:.1f} %", 100 * m.first),
         order_of(m.series),
         order_of(m.centred_series)}
    );
  };
  for (int64_t l = 0; l < e.layers; ++l) {
    ModelExplanation layer;
    for (const HeadMeasures& h : e.heads) {
      if (h.layer == l) layer.heads.push_back(h);
    }
    if (!layer.heads.empty()) row(std::to_string(l), layer);
  }
  row("all", e);
  say("{}", model_verdict(e));
  fmt::print("\n{}\n", fitted(table));
  say("Means over heads. Distance in tokens, entropy in nats; order: the smallest even order of "
      "the series that puts at most {:.0f} % of the weight elsewhere.",
      100 * kSeriesTolerance);
  for (const TellingHead& t : e.telling)
    say("Layer {}, head {}: {}.", t.measures.layer, t.measures.head, t.role);
  if (!e.skipped.empty()) say("Not softmax attention: layers {}.", fmt::join(e.skipped, ", "));
}

ModelExplanation explain_with_progress(const ModelExplainOptions& o) {
  std::optional<Progress> progress;
  return explain_model(o, [&](int64_t layer, int64_t layers) {
    if (!progress) progress.emplace(size_t(layers), "layers");
    progress->at(size_t(layer), "measuring heads", fmt::format("layer {}", layer));
  });
}

// The pictures of docs/concepts.md.
void write_concepts(const ExplainOptions& o, const std::string& folder) {
  make_folder(folder);
  for (const auto& [name, picture] : concept_pictures(measure_capacity(32, uint64_t(o.seed))))
    write_file(folder + "/" + name + ".svg", svg_file(picture));
  fmt::print("{0}/series.svg, {0}/forms.svg and {0}/capacity.svg are written.\n", folder);
}

}  // namespace

std::function<int()> declare_explain(CLI::App& app) {
  const auto options = std::make_shared<ExplainOptions>();
  const auto mixer = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  app.add_option(
      "mixer",
      *mixer,
      "mixer or mixer:settings, as in taylor:order=4,norm=l2; none with --checkpoint or --model"
  );
  const auto model = std::make_shared<ModelExplainOptions>();
  add_flags(app, *options);
  add_flags(app, *model);
  app.add_flag("--json", *json, "everything, as JSON");
  app.add_option(
      "--out", *out, "folder that explain.json, explain.html and plots/*.svg are written to"
  );
  const auto concepts = std::make_shared<std::string>();
  app.add_option(
      "--concepts", *concepts, "folder that the pictures of docs/concepts.md are written to"
  );
  return [=] {
    if (!concepts->empty()) {
      write_concepts(*options, *concepts);
      return 0;
    }
    const int given =
        int(!mixer->empty()) + int(!options->checkpoint.empty()) + int(!model->model.empty());
    HORNER_CHECK(
        given == 1, "explain takes one of a mixer of `horner list`, --checkpoint and --model"
    );
    const auto show = [&](const auto& e, auto pictures, auto page, const Origin& origin) {
      if (!out->empty()) write(e.json(), pictures(e), page(e), origin, *out);
      if (*json) {
        fmt::print("{}\n", e.json().dump(2));
      } else {
        print(e);
        if (!out->empty()) fmt::print("\n{}/explain.html shows it.\n", *out);
      }
    };
    if (model->model.empty()) {
      const Origin from = origin(command_line(), std::to_string(options->seed), "CPU", "fp64");
      show(explain(*mixer, *options), explain_pictures, explain_page, from);
    } else {
      model->text = options->text;
      if (options->T != 0) model->T = options->T;
      const Origin from = origin(command_line(), "none", "CPU", "fp32");
      show(explain_with_progress(*model), model_pictures, model_page, from);
    }
    return 0;
  };
}

}  // namespace horner
