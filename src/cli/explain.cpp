// horner explain MIXER: what it computes, holds, forgets and reads, as text or JSON.
#include "lab/explain/explain.h"

#include "cli/command.h"
#include "cli/flags.h"
#include "core/check.h"
#include "core/file.h"
#include "core/number.h"
#include "core/origin.h"
#include "report/explain_page.h"
#include "report/table.h"

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

void print(const Explanation& e) {
  fmt::print("{}  (arXiv:{})\n  {}\n\n", e.mixer, e.paper, e.equation);
  for (const std::string& line : e.voids) fmt::print("Void: {}.\n", line);
  Table held{{"parameter", "shape"}, {}};
  for (const auto& p : e.parameters)
    held.rows.push_back({p.name, fmt::format("{}", fmt::join(p.shape, " x "))});
  fmt::print("{}\n{} parameters.\n\n", held.text(), e.parameter_count);
  if (!e.sizes.empty()) {
    Table sizes{{"T", "state", "key/value cache"}, {}};
    for (const auto& s : e.sizes)
      sizes.rows.push_back(
          {std::to_string(s.T), short_bytes(double(s.bytes)), short_bytes(double(s.cache))}
      );
    fmt::print("{}", sizes.text());
    if (e.crossover > 0) {
      fmt::print("The state is the smaller one from T = {} on.\n\n", e.crossover);
    } else {
      fmt::print("The state grows with T.\n\n");
    }
    fmt::print(
        "h_t = Lambda_t h_(t-1) + B_t u_t, y_t = C_t h_t + D_t u_t by `{}`, F = {} per value "
        "channel.\n"
        "Lambda: {:.3f} least, {:.3f} {:.3f} {:.3f} quartiles, {:.3f} most; {:.0f} % above 1; "
        "median half-life {:.1f} tokens.\n"
        "{}.\n\n",
        e.op,
        e.F,
        e.transition[0],
        e.transition[1],
        e.transition[2],
        e.transition[3],
        e.transition[4],
        100 * e.growing,
        e.half_life,
        e.consequence
    );
  }
  if (!e.orders.empty()) {
    fmt::print("Share of order 0, 1, 2, .. of the exponential:");
    for (const double share : e.orders) fmt::print(" {:.3f}", share);
    fmt::print("\n");
  }
  fmt::print(
      "Rows of the map sum to {:.3f} .. {:.3f}; {:.1f} % of its mass is negative. Who reads whom, "
      "first head:\n{}",
      e.row_sum_low,
      e.row_sum_high,
      100 * e.negative_mass,
      picture(e)
  );
  if (e.confusion.heads.empty()) return;
  double pairs = 0;
  for (const auto& head : e.confusion.heads) pairs += head.pairs / double(e.confusion.heads.size());
  fmt::print(
      "{:.2f} % of pairs of different queries get the same weights; doubling a query changes its "
      "weights by {:.3g}.\n",
      100 * pairs,
      e.confusion.doubled
  );
}

void write(const Explanation& e, const ExplainOptions& o, const std::string& folder) {
  make_folder(folder + "/plots");
  write_file(folder + "/explain.json", e.json().dump(2) + "\n");
  for (const auto& [name, picture] : explain_pictures(e))
    write_file(folder + "/plots/" + name + ".svg", svg_file(picture));
  Page page = explain_page(e);
  page.origin = origin(command_line(), std::to_string(o.seed), "CPU", "fp64");
  write_file(folder + "/explain.html", html(page));
}

}  // namespace

std::function<int()> declare_explain(CLI::App& app) {
  const auto options = std::make_shared<ExplainOptions>();
  const auto mixer = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  app.add_option(
      "mixer",
      *mixer,
      "mixer or mixer:settings, as in taylor:order=4,norm=l2; none with --checkpoint"
  );
  add_flags(app, *options);
  app.add_flag("--json", *json, "everything, as JSON");
  app.add_option(
      "--out", *out, "folder that explain.json, explain.html and plots/*.svg are written to"
  );
  return [=] {
    HORNER_CHECK(
        mixer->empty() != options->checkpoint.empty(),
        "explain takes a mixer of `horner list`, or --checkpoint"
    );
    const Explanation e = explain(*mixer, *options);
    if (!out->empty()) write(e, *options, *out);
    if (*json) {
      fmt::print("{}\n", e.json().dump(2));
    } else {
      print(e);
    }
    return 0;
  };
}

}  // namespace horner
