// horner score MODEL: how well a model knows texts and answers questions, alone or against a second model.
#include "lab/score/score.h"

#include <filesystem>
#include <optional>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "core/number.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace horner {
namespace {

std::string name_of(const std::string& path) { return std::filesystem::path(path).filename(); }
std::string share(const RightShare& s) { return fmt::format("{:.4f} ± {:.4f}", s.value, s.error); }
std::string maybe(const std::optional<double>& x) { return x ? fmt::format("{:.3f}", *x) : "-"; }
std::string interval(const Interval& i) {
  return i.n > 1 ? fmt::format("{:.4f} ± {:.4f}", i.mean, i.half) : fmt::format("{:.4f}", i.mean);
}

void print_texts(const ScoreResult& r) {
  Table table{{"text", "tokens", "nats a token", "perplexity", "bits per byte"}, {}};
  if (!r.against.empty())
    table.head.insert(table.head.end(), {"second's nats", "difference", "KL", "same top"});
  for (const TextScore& t : r.texts) {
    std::vector<std::string> row = {
        name_of(t.file),
        std::to_string(t.tokens),
        interval(t.nats),
        fmt::format("{:.3f}", t.perplexity()),
        fmt::format("{:.4f}", t.bits_per_byte)};
    if (t.against) {
      const TextAgainst& a = *t.against;
      row.insert(
          row.end(),
          {fmt::format("{:.4f}", a.nats),
           interval(a.difference),
           interval(a.kl),
           fmt::format("{:.4f}", a.same_top)}
      );
    }
    table.rows.push_back(row);
  }
  fmt::print("{}\n", fitted(table));
}

void print_positions(const TextScore& t) {
  Table table{{"position in " + name_of(t.file), "tokens", "nats"}, {}};
  if (t.against) table.head.push_back("KL");
  for (const PositionScore& p : t.by_position) {
    table.rows.push_back(
        {fmt::format("{} .. {}", p.from, p.to - 1),
         std::to_string(p.tokens),
         fmt::format("{:.4f}", p.nats)}
    );
    if (t.against) table.rows.back().push_back(fmt::format("{:.4f}", p.kl));
  }
  fmt::print("{}\n", fitted(table));
}

void print_questions(const ScoreResult& r) {
  Table table{
      {"questions",
       "kind",
       "number",
       "right",
       "per character",
       "chance",
       "shortest",
       "longest",
       "perplexity"},
      {}};
  if (!r.against.empty()) table.head.insert(table.head.end(), {"second", "difference"});
  for (const QuestionScore& q : r.questions) {
    std::vector<std::string> row = {
        name_of(q.file),
        q.kind,
        std::to_string(q.questions),
        share(q.right),
        q.normalised ? share(*q.normalised) : "-",
        maybe(q.chance),
        maybe(q.shortest),
        maybe(q.longest),
        maybe(q.perplexity)};
    if (q.against && q.difference) {
      row.push_back(share(*q.against));
      row.push_back(fmt::format(
          "{:.4f} [{:.4f}, {:.4f}]", q.difference->mean, q.difference->low, q.difference->high
      ));
    }
    table.rows.push_back(row);
  }
  fmt::print("{}\n", fitted(table));
}

void print(const ScoreResult& r, bool positions) {
  const std::string second =
      r.against.empty() ? ""
                        : fmt::format("; the second model is {}, and KL is from it", r.against);
  fmt::print(
      "{}\n\n",
      fitted(fmt::format("{} on {}, context {} tokens{}.", r.model, r.device, r.context, second))
  );
  if (!r.texts.empty()) print_texts(r);
  for (const TextScore& t : r.texts) {
    if (positions) print_positions(t);
  }
  if (!r.questions.empty()) print_questions(r);
  fmt::print(
      "{}\n",
      fitted("± after nats and KL: 95 % interval over windows; after a share: standard error.")
  );
}

}  // namespace

std::function<int()> declare_score(CLI::App& app) {
  const auto options = std::make_shared<ScoreOptions>();
  const auto model = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false), positions = std::make_shared<bool>(false);
  app.add_option("model", *model, "run folder, model folder, GGUF file or name of `horner get`")
      ->required();
  add_flags(app, *options);
  app.add_flag("--by-position", *positions, "also the loss of each text by position in its window");
  app.add_flag("--json", *json, "everything, as JSON");
  app.add_option("--out", *out, "folder that score.json is written to");
  return [=] {
    if (!out->empty()) make_folder(*out);
    ScoreResult result;
    {
      std::optional<Progress> progress;
      result = score(*model, *options, [&](size_t done, size_t total, const std::string& file) {
        if (done == 0) progress.emplace(total, "sequences");
        progress->at(done, name_of(file), "");
      });
    }
    if (!out->empty()) write_file(*out + "/score.json", result.json().dump(2) + "\n");
    if (*json) {
      fmt::print("{}\n", result.json().dump(2));
    } else {
      print(result, *positions);
    }
    return 0;
  };
}

}  // namespace horner
