// horner reproduce PAPER: its claims as experiments, and whether they hold.
#include "lab/reproduce/reproduce.h"

#include <filesystem>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/origin.h"
#include "report/findings.h"
#include "report/progress.h"

namespace horner {
namespace {

void write(Reproduction& r, const std::string& folder) {
  make_folder(folder);
  const std::string base = folder + "/" + r.paper->name, path = base + ".json";
  if (std::filesystem::exists(path)) r.add(parse_json(read_file(path), path));
  write_file(path, r.json().dump(2) + "\n");
  write_file(base + ".md", markdown(r));
  if (const std::string svg = picture(r); !svg.empty()) write_file(base + ".svg", svg);
  write_file(base + ".html", page(r, shell_line(command_line())));
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
  const auto names = std::make_shared<std::vector<std::string>>();
  const auto json = std::make_shared<bool>(false), list = std::make_shared<bool>(false);
  app.add_option("papers", *names, "taylor, dsf, inline, metala, luna, swax, selective-rope, ..");
  app.add_flag("--list", *list, "the papers and their claims");
  add_flags(app, *options);
  app.add_flag("--json", *json, "everything, as JSON");
  return [=] {
    if (*list || names->empty()) {
      list_papers();
      return 0;
    }
    std::vector<const Paper*> chosen;
    for (const std::string& name : *names) chosen.push_back(&find_paper(name));
    const CatchInterrupt catch_interrupt;
    std::vector<Reproduction> all;
    {
      std::optional<Progress> progress;
      int64_t total = -1;
      all = reproduce(chosen, *options, "/proc/self/exe", [&](const RunsTick& tick) {
        if (tick.steps != total) progress.emplace(size_t(tick.steps));
        total = tick.steps;
        progress->at(
            size_t(tick.steps_done),
            fmt::format("{} of {} runs", tick.runs_done, tick.runs),
            tick.what
        );
      });
    }
    Json everything = Json::array();
    for (Reproduction& r : all) {
      for (Finding& f : r.findings) f.date = now();
      if (!options->out.empty()) write(r, options->out);
      if (!*json) fmt::print("{}\n", text(r));
      everything.push_back(r.json());
    }
    if (*json) fmt::print("{}\n", (all.size() == 1 ? everything[0] : everything).dump(2));
    return 0;
  };
}

}  // namespace horner
