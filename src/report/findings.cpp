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
  Interval i = row.exact ? Interval{row.scores[0], 0, 1} : t_interval(row.scores);
  if (is_loss(f)) i.mean = -i.mean;
  return i;
}

Table arms(const Finding& f) {
  Table table{{"arm", f.score, "seeds", "parameters", "state", "seconds"}, {}};
  for (const ArmScores& row : f.rows) {
    const bool failed = row.scores.empty();
    table.rows.push_back(
        {row.arm,
         failed ? "failed: " + row.failure : with_interval(shown(f, row)),
         std::to_string(row.scores.size()),
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
    table.rows.push_back({j.text, with_interval(j.value), std::string(words(j.verdict))});
  }
  return table;
}

std::string heading(const Reproduction& r) {
  return fmt::format("{} (arXiv:{})", r.paper->title, r.paper->arxiv);
}

Bars bars(const Finding& f) {
  Bars picture{f.claim + ": " + f.score, {}};
  for (const ArmScores& row : f.rows) {
    if (row.scores.empty()) continue;
    const Interval i = shown(f, row);
    picture.bars.push_back({row.arm, i.mean, i.low(), i.high()});
  }
  return picture;
}

}  // namespace

std::string text(const Reproduction& r) {
  std::string all = heading(r) + "\n";
  for (const Finding& f : r.findings) {
    all += fmt::format(
        "\n{}: {}.\n  says: {}.\n  here: {}.\n\n{}\n{}",
        f.claim,
        words(f.verdict),
        f.says,
        f.setting,
        arms(f).text(),
        expectations(f).text()
    );
  }
  Table summary{{"claim", "verdict", "seconds"}, {}};
  for (const Finding& f : r.findings) {
    summary.rows.push_back(
        {f.claim, std::string(words(f.verdict)), fmt::format("{:.0f}", f.seconds)}
    );
  }
  return all + "\n" + summary.text();
}

std::string markdown(const Reproduction& r) {
  std::string all = fmt::format(
      "# {}\n\nMade by `horner reproduce {} --scale {}` on {}, commit {}, {}. A difference is that "
      "of "
      "paired seeds; for a loss it is counted so that more is better.\n",
      heading(r),
      r.paper->name,
      r.options.scale,
      r.device,
      r.commit,
      r.date
  );
  for (const Finding& f : r.findings) {
    all += fmt::format(
        "\n## {}: {}\n\n> {}.\n\nHere: {}.\n\n{}\n{}",
        f.claim,
        words(f.verdict),
        f.says,
        f.setting,
        arms(f).markdown(),
        expectations(f).markdown()
    );
  }
  return all;
}

std::string picture(const Reproduction& r) {
  std::string all;
  for (const Finding& f : r.findings) {
    if (f.score != "value") all += svg(bars(f));
  }
  return all;
}

std::string page(const Reproduction& r, const std::string& command) {
  Page page{heading(r)};
  std::vector<std::string> verdicts;
  for (const Finding& f : r.findings) {
    verdicts.push_back(fmt::format("{}: {}", f.claim, words(f.verdict)));
    SortTable scores{arms(f).head, {}}, judged{expectations(f).head, {}};
    for (const auto& row : arms(f).rows) {
      scores.rows.emplace_back();
      for (const std::string& cell : row) scores.rows.back().push_back({cell});
    }
    for (const auto& row : expectations(f).rows) {
      judged.rows.emplace_back();
      for (const std::string& cell : row) judged.rows.back().push_back({cell});
    }
    page.sections.push_back(
        {fmt::format("{}: {}", f.claim, words(f.verdict)),
         paragraph("The paper: " + f.says + ".") + paragraph("Here: " + f.setting + ".") +
             (f.score == "value" ? std::string() : figure(svg(bars(f)))) + sortable(scores) +
             sortable(judged)}
    );
  }
  page.verdict = fmt::format("{}.", fmt::join(verdicts, "; "));
  page.origin = {
      {"command", command}, {"device", r.device}, {"commit", r.commit}, {"date", r.date}};
  return html(page);
}

}  // namespace horner
