// horner convert MODEL --to MIXER: another mixer in the place of softmax, with a certificate of what was lost.
#include "lab/convert/convert.h"

#include <optional>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/number.h"
#include "core/origin.h"
#include "report/certificate_page.h"
#include "report/progress.h"
#include "report/terminal.h"
#include "report/train.h"

namespace horner {
namespace {

void write(const Certificate& c, const std::string& folder) {
  make_folder(folder + "/plots");
  for (const auto& [name, picture] : certificate_pictures(c))
    write_file(folder + "/plots/" + name + ".svg", svg_file(picture));
  Page page = certificate_page(c);
  const std::string seeds = c.training_tokens() > 0 ? std::to_string(c.seed) : "none";
  page.origin = origin(command_line(), seeds, c.device, c.precision);
  write_file(folder + "/certificate.html", html(page));
  write_file(folder + "/README.md", model_card(c, folder));
}

std::vector<std::string> row(const ConvertStep& s) {
  return {
      s.name,
      short_count(double(s.tokens)),
      fmt::format("{:.4f}", s.kl.mean),
      fmt::format("{:.3f}", s.perplexity),
      signed_number(100 * s.change, 1) + " %",
      fmt::format("{:.1f} %", 100 * s.same_top)};
}

void print_written(const Certificate& c) {
  if (c.generated) {
    const GeneratedMatch& g = *c.generated;
    const std::string line = fmt::format(
        "{} texts of {} tokens by both: {:.1f} tokens before the first difference, {:.0f} % equal.",
        g.texts,
        g.tokens,
        g.prefix,
        100 * g.same_texts
    );
    fmt::print("{}\n", fitted(line));
  }
  for (const NeedleRecall& n : c.needles)
    fmt::print(
        "Numbers found in {} tokens: {:.0f} %, the teacher {:.0f} %, of {}.\n",
        n.T,
        100 * n.student,
        100 * n.teacher,
        n.asked
    );
}

void print(const Certificate& c, const std::string& folder) {
  fmt::print("{}\n\n", fitted(certificate_verdict(c)));
  Table table{{"student", "tokens", "KL", "perplexity", "change", "same top"}, {}};
  for (const ConvertStep& step : c.steps) table.rows.push_back(row(step));
  const auto add_part = [&](const std::string& name, const std::optional<TextScore>& score) {
    if (score) table.rows.push_back(row(ConvertStep::of(name, *score)));
    if (score) table.rows.back()[1] = "";
  };
  add_part("its window only", c.window_only);
  add_part("its state only", c.state_only);
  fmt::print("{}\n", fitted(table));
  print_written(c);
  if (c.planning) {
    Table plans{{"plan", "softmax layers", "KL", "state"}, {}};
    for (const LayerPlan& p : c.planning->tried)
      plans.rows.push_back(
          {p.name,
           std::to_string(p.kept.size()),
           fmt::format("{:.4f}", p.kl.mean),
           short_bytes(double(p.state_bytes))}
      );
    fmt::print("{}\n", fitted(plans));
  }
  const std::string end = fmt::format(
      "{0} is the model; {0}/certificate.html shows what was lost. {1:.0f} s.", folder, c.seconds
  );
  fmt::print("{}\n", fitted(end));
}

// Progress of either kind; one follows the other in the same line of the terminal.
struct Shown {
  std::optional<Progress> steps;
  std::optional<TrainProgress> training;
  std::string last;

  TellConvert tell() {
    const auto step = [this](const std::string& name, size_t done, size_t total) {
      training.reset();
      if (name != last || !steps)
        steps.emplace(
            total, name == "calibrating" || name == "each layer alone" ? "layers" : "sequences"
        );
      last = name;
      steps->at(done, name, "");
    };
    const auto train = [this](const TrainTick& tick) {
      steps.reset();
      if (!training) training.emplace("");
      training->show(tick);
    };
    return {step, train};
  }
};

}  // namespace

std::function<int()> declare_convert(CLI::App& app) {
  const auto options = std::make_shared<ConvertOptions>();
  const auto model = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  app.add_option("model", *model, "run folder, model folder, GGUF file or name of `horner get`")
      ->required();
  add_flags(app, *options);
  app.add_flag("--json", *json, "the certificate, as JSON");
  return [=] {
    Certificate certificate;
    {
      const CatchInterrupt catch_interrupt;
      const TimeLimit limit(options->minutes * 60);
      Shown shown;
      certificate = convert(*model, *options, shown.tell());
    }
    write(certificate, options->out);
    end_conversion(options->out);
    if (*json) {
      fmt::print("{}\n", certificate.json().dump(2));
    } else {
      print(certificate, options->out);
    }
    return 0;
  };
}

}  // namespace horner
