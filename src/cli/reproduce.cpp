// horner reproduce PAPER: its claims as experiments, and whether they hold.
#include "lab/reproduce/reproduce.h"

#include <unistd.h>

#include <filesystem>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/check.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/origin.h"
#include "lab/reproduce/queue.h"
#include "report/claims.h"
#include "report/findings.h"
#include "report/progress.h"
#include "report/terminal.h"
#include "train/run_folder.h"

namespace horner {
namespace {

// The findings that a folder has of a paper are added; claims that have none are untested.
void add_known(Reproduction& r, const std::string& folder) {
  const std::string path = folder + "/" + r.paper->name + ".json";
  if (std::filesystem::exists(path)) read_from(path, [&](const Json& json) { r.add(json); });
}

void write(Reproduction& r, const std::string& folder) {
  make_folder(folder);
  const std::string base = folder + "/" + r.paper->name;
  add_known(r, folder);
  if (!r.findings.empty()) write_file(base + ".json", r.json().dump(2) + "\n");
  r.add_missing();
  write_file(base + ".md", markdown(r));
  if (const std::string svg = picture(r); !svg.empty()) write_file(base + ".svg", svg);
  write_file(base + ".html", page(r, shell_line(command_line())));
}

// When the findings of now were made, and by which command.
void sign(Reproduction& r) {
  for (Finding& f : r.findings) {
    f.date = now();
    f.command = shell_line(command_line());
  }
}

void list_papers(bool json) {
  Json list = Json::array();
  for (const Paper& paper : papers()) {
    Json claims = Json::array();
    for (const Claim& claim : paper.claims)
      claims.push_back({{"name", claim.name}, {"says", claim.says}});
    list.push_back(
        {{"name", paper.name}, {"arxiv", paper.arxiv}, {"title", paper.title}, {"claims", claims}}
    );
  }
  if (json) {
    fmt::print("{}\n", list.dump(2));
    return;
  }
  const size_t width = terminal_width(STDOUT_FILENO);
  for (const Paper& paper : papers()) {
    const std::string title = fmt::format("{}  arXiv:{}  {}", paper.name, paper.arxiv, paper.title);
    fmt::print("{}\n", wrapped(title, width, 4));
    for (const Claim& claim : paper.claims)
      fmt::print("{}\n", wrapped(fmt::format("  {}: {}.", claim.name, claim.says), width, 4));
  }
}

std::vector<const Paper*> named_papers(const std::vector<std::string>& names) {
  std::vector<const Paper*> list;
  for (const std::string& name : names) list.push_back(&find_paper(name));
  if (names.empty()) {
    for (const Paper& paper : papers()) list.push_back(&paper);
  }
  return list;
}

// What a queue would run, in its order.
void print_plan(const std::vector<const Paper*>& chosen, const ReproduceOptions& o) {
  Table table{{"paper", "claim", "runs", "k steps", "minutes", "to the last look", "status"}, {}};
  std::vector<const Claim*> open;
  for (const Queued& q : queue_of(chosen, o)) {
    if (q.open) open.push_back(q.claim);
    table.rows.push_back(
        {q.paper->name,
         q.claim->name,
         std::to_string(q.first.runs),
         fmt::format("{:.0f}", q.first.steps / 1e3),
         fmt::format("{:.1f}", q.first.minutes()),
         fmt::format("{:.1f}", q.all.minutes()),
         q.open ? q.status : q.status + "; closed"}
    );
  }
  const std::string total = fmt::format(
      "Open claims at their first look, runs that they share once: {:.0f} minutes of one H200 "
      "(estimated).",
      first_looks(open, o.scale == "gpu" ? Effort::gpu : Effort::cpu).minutes()
  );
  fmt::print("{}\n{}\n", fitted(table), wrapped(total, terminal_width(STDOUT_FILENO)));
}

void print_table(const std::vector<const Paper*>& chosen, const std::string& folder) {
  std::vector<Reproduction> all;
  for (const Paper* paper : chosen) {
    if (paper->survey) continue;
    all.push_back({paper, {}});
    add_known(all.back(), folder);
    all.back().add_missing();
  }
  fmt::print("{}\n\n{}", claims_count(all), claims_table(all).markdown());
}

// The pages of a folder, written again from its findings.
void write_pages(const std::vector<const Paper*>& chosen, const std::string& folder) {
  for (const Paper* paper : chosen) {
    Reproduction r{paper, {}};
    write(r, folder);
    fmt::print("{}: {}\n", paper->name, sentence(r));
  }
}

// Progress over stages, each with a number of steps of its own.
RunsTell show_progress(std::optional<Progress>& progress) {
  const auto total = std::make_shared<int64_t>(-1);
  return [&progress, total](const RunsTick& tick) {
    if (tick.steps != *total) progress.emplace(size_t(tick.steps), "steps");
    *total = tick.steps;
    progress->at(
        size_t(tick.steps_done), fmt::format("{} of {} runs", tick.runs_done, tick.runs), tick.what
    );
  };
}

int work_through(const std::vector<const Paper*>& chosen, const ReproduceOptions& o) {
  HORNER_CHECK(
      !o.out.empty(), "--queue needs --out DIR: the claims that its files decide are left out"
  );
  std::optional<Progress> progress;
  run_queue(chosen, o, "/proc/self/exe", show_progress(progress), [&](Reproduction& r) {
    progress.reset();
    sign(r);
    for (const Finding& f : r.findings) {
      fmt::print("{}, {}: {}\n", r.paper->name, f.claim, words(f.verdict));
    }
    std::fflush(stdout);
    write(r, o.out);
  });
  progress.reset();
  size_t open = 0;
  for (const Queued& q : queue_of(chosen, o)) open += q.open ? 1 : 0;
  fmt::print("{}{} claims are open\n", TimeLimit::reached() ? "time is up: " : "", open);
  return 0;
}

}  // namespace

std::function<int()> declare_reproduce(CLI::App& app) {
  const auto options = std::make_shared<ReproduceOptions>();
  const auto names = std::make_shared<std::vector<std::string>>();
  const auto json = std::make_shared<bool>(false), list = std::make_shared<bool>(false),
             plan = std::make_shared<bool>(false), table = std::make_shared<bool>(false),
             pages = std::make_shared<bool>(false);
  app.add_option("papers", *names, "taylor, dsf, inline, metala, luna, swax, selective-rope, ..");
  app.add_flag("--list", *list, "the papers and their claims");
  app.add_flag("--plan", *plan, "what --queue would run, in its order, and what it costs");
  app.add_flag(
      "--table",
      *table,
      "how many claims hold, and all of them with their verdicts in --out, as Markdown"
  );
  app.add_flag("--pages", *pages, "write the pages of --out again from its findings");
  add_flags(app, *options);
  app.add_flag("--json", *json, "everything, as JSON");
  return [=] {
    const bool all_papers = options->queue || *plan || *table || *pages;
    if (*list || (names->empty() && !all_papers)) {
      list_papers(*json);
      return 0;
    }
    const std::vector<const Paper*> chosen = named_papers(*names);
    check_options(*options);
    if (*plan) print_plan(chosen, *options);
    if (*table) print_table(chosen, options->out.empty() ? "docs/results" : options->out);
    if (*pages) write_pages(chosen, options->out.empty() ? "docs/results" : options->out);
    if (*plan || *table || *pages) return 0;
    const CatchInterrupt catch_interrupt;
    const TimeLimit limit(options->minutes * 60);
    if (options->queue) return work_through(chosen, *options);
    std::vector<Reproduction> all;
    {
      std::optional<Progress> progress;
      all = reproduce(chosen, *options, "/proc/self/exe", show_progress(progress));
    }
    Json everything = Json::array();
    for (Reproduction& r : all) {
      sign(r);
      if (!options->out.empty()) write(r, options->out);
      if (!*json) fmt::print("{}\n", text(r, terminal_width(STDOUT_FILENO)));
      if (!*json && !options->out.empty())
        fmt::print(
            "{0}/{1}.html shows it; {0}/{1}.md and .json too.\n", options->out, r.paper->name
        );
      everything.push_back(r.json());
    }
    if (TimeLimit::reached())
      std::fprintf(stderr, "horner: time is up; the same command goes on\n");
    if (*json) fmt::print("{}\n", (all.size() == 1 ? everything[0] : everything).dump(2));
    return 0;
  };
}

}  // namespace horner
