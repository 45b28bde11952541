#include "report/findings.h"

#include <cmath>

#include "report/html.h"
#include "report/table.h"

namespace horner {
namespace {

bool is_loss(const Finding& f) { return f.score.ends_with("loss"); }

std::string number(double x) { return std::isfinite(x) ? fmt::format("{:.4g}", x) : "?"; }

std::string with_interval(const Interval& i) {
  return i.half == 0 ? number(i.mean) : fmt::format("{} ± {}", number(i.mean), number(i.half));
}

// Scores as people know them: a loss is stored negatively.
Interval shown(const Finding& f, const ArmScores& row) {
  Interval i = row.exact ? Interval{row.scores[0], 0, 1} : t_interval(row.known());
  if (is_loss(f)) i.mean = -i.mean;
  return i;
}

Table arms(const Finding& f) {
  Table table{{"arm", f.score, "seeds", "learning rate", "parameters", "state", "seconds"}, {}};
  for (const ArmScores& row : f.rows) {
    const size_t seeds = row.known().size();
    table.rows.push_back(
        {row.arm,
         (seeds > 0 ? with_interval(shown(f, row)) : "none") +
             (row.failure.empty() ? "" : "; failed: " + row.failure),
         std::to_string(seeds),
         row.lr > 0
             ? fmt::format("{:.2g}", row.lr) + (row.lr_note.empty() ? "" : ", " + row.lr_note)
             : "-",
         row.parameters > 0 ? fmt::format("{:.0f}", row.parameters) : "-",
         row.state_bytes > 0 ? short_bytes(row.state_bytes) : "-",
         row.seconds > 0 ? fmt::format("{:.0f}", row.seconds) : "-"}
    );
  }
  return table;
}

Table expectations(const Finding& f) {
  Table table{{"expected", "measured, 95 %", "verdict"}, {}};
  for (const Judgement& j : f.judgements) {
    table.rows.push_back(
        {j.text, j.value.n > 0 ? with_interval(j.value) : "-", std::string(words(j.verdict))}
    );
  }
  return table;
}

std::string heading(const Reproduction& r) {
  return fmt::format("{} (arXiv:{})", r.paper->title, r.paper->arxiv);
}

bool one_unit(const Finding& f) { return f.score != "value"; }

Bars bars(const Finding& f) {
  Bars picture{fmt::format("{}, scale {}: {}", f.claim, f.scale, f.score), {}};
  for (const ArmScores& row : f.rows) {
    if (row.known().empty()) continue;
    const Interval i = shown(f, row);
    picture.bars.push_back({row.arm, i.mean, i.low(), i.high()});
  }
  return picture;
}

std::string title(const Finding& f) {
  return fmt::format("{}, scale {}: {}", f.claim, f.scale, words(f.verdict));
}

std::string where(const Finding& f) {
  return fmt::format(
      "{:.0f} s of training and measuring on {}, commit {}, {}{}",
      f.seconds,
      f.device,
      f.commit,
      f.date,
      f.data.empty() ? "" : "; data: " + f.data
  );
}

}  // namespace

std::string text(const Reproduction& r) {
  std::string all = heading(r) + "\n";
  for (const Finding& f : r.findings) {
    all += fmt::format(
        "\n{}.\n  says: {}.\n  here: {}.\n\n{}\n{}",
        title(f),
        f.says,
        f.setting,
        arms(f).text(),
        expectations(f).text()
    );
  }
  Table summary{{"claim", "scale", "verdict", "seconds"}, {}};
  for (const Finding& f : r.findings) {
    summary.rows.push_back(
        {f.claim, f.scale, std::string(words(f.verdict)), fmt::format("{:.0f}", f.seconds)}
    );
  }
  return all + "\n" + summary.text();
}

std::string markdown(const Reproduction& r) {
  std::string all = fmt::format(
      "# {}\n\nWritten by `horner reproduce {}`. A difference is that of paired seeds; for a loss "
      "it "
      "is counted so that more is better.\n",
      heading(r),
      r.paper->name
  );
  if (!picture(r).empty())
    all += fmt::format("\n![every arm with its interval]({}.svg)\n", r.paper->name);
  for (const Finding& f : r.findings) {
    all += fmt::format(
        "\n## {}\n\n> {}.\n\nHere: {}. {}.\n\n{}\n{}",
        title(f),
        f.says,
        f.setting,
        where(f),
        arms(f).markdown(),
        expectations(f).markdown()
    );
  }
  return all;
}

std::string picture(const Reproduction& r) {
  std::vector<std::string> all;
  for (const Finding& f : r.findings) {
    if (one_unit(f)) all.push_back(svg(bars(f)));
  }
  return all.empty() ? "" : svg_file(stacked(heading(r), all));
}

std::string page(const Reproduction& r, const std::string& command) {
  Page page{heading(r)};
  std::vector<std::string> verdicts;
  const auto sortable_of = [](const Table& table) {
    SortTable sorted{table.head, {}};
    for (const auto& row : table.rows) {
      sorted.rows.emplace_back();
      for (const std::string& cell : row) sorted.rows.back().push_back({cell});
    }
    return sortable(sorted);
  };
  for (const Finding& f : r.findings) {
    verdicts.push_back(title(f));
    page.sections.push_back(
        {title(f),
         paragraph("The paper: " + f.says + ".") +
             paragraph(fmt::format("Here: {}. {}.", f.setting, where(f))) +
             (one_unit(f) ? figure(svg(bars(f))) : "") + sortable_of(arms(f)) +
             sortable_of(expectations(f))}
    );
  }
  page.verdict = fmt::format("{}.", fmt::join(verdicts, "; "));
  page.origin = {{"command", command}};
  return html(page);
}

}  // namespace horner
