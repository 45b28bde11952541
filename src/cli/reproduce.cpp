// horner reproduce PAPER: its claims as experiments, and whether they hold.
#include "lab/reproduce.h"

#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "report/findings.h"
#include "report/origin.h"
#include "report/progress.h"

namespace horner {
namespace {

void write(const Reproduction& r, const std::string& folder) {
  make_folder(folder);
  const std::string base = folder + "/" + r.paper->name;
  write_file(base + ".json", r.json().dump(2) + "\n");
  write_file(base + ".md", markdown(r));
  write_file(base + ".html", page(r, "horner reproduce " + r.paper->name));
}

void list_papers() {
  for (const Paper& paper : papers()) {
    fmt::print("{}  arXiv:{}  {}\n", paper.name, paper.arxiv, paper.title);
    for (const Claim& claim : paper.claims) fmt::print("  {}: {}.\n", claim.name, claim.says);
  }
}

}  // namespace

std::function<int()> declare_reproduce(CLI::App& app) {
  const auto options = std::make_shared<ReproduceOptions>();
  const auto paper = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false), list = std::make_shared<bool>(false);
  app.add_option("paper", *paper, "taylor, dsf, inline, metala, luna, swax, selective-rope, ..");
  app.add_flag("--list", *list, "the papers and their claims");
  add_flags(app, *options);
  app.add_flag("--json", *json, "everything, as JSON");
  return [=] {
    if (*list || paper->empty()) {
      list_papers();
      return 0;
    }
    const Paper& chosen = find_paper(*paper);
    std::optional<Progress> progress;
    Reproduction r = reproduce(
        chosen,
        *options,
        [&](size_t done, size_t total, const std::string& claim, const std::string& what) {
          if (!progress) progress.emplace(total);
          progress->at(done, claim, what);
        }
    );
    progress.reset();
    r.date = now();
    if (!options->out.empty()) write(r, options->out);
    fmt::print("{}\n", *json ? r.json().dump(2) : text(r));
    return 0;
  };
}

}  // namespace horner
