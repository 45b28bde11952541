#include "report/findings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/number.h"
#include "report/html.h"
#include "report/palette.h"
#include "report/table.h"
#include "train/evaluate.h"

namespace horner {
namespace {

// "test/loss"
bool less_is_better(const Finding& f) {
  return smaller_is_better(f.score.substr(f.score.find('/') + 1));
}

std::string number(double x) { return std::isfinite(x) ? fmt::format("{:.4g}", x) : "?"; }

// Two digits of the half width, the mean to the same place.
std::string with_interval(const Interval& i) {
  if (!std::isfinite(i.half)) return number(i.mean) + " ± ?";
  if (i.half <= 1e-9 * std::abs(i.mean)) return number(i.mean);
  const int places = std::clamp(1 - int(std::floor(std::log10(i.half))), 0, 9);
  return fmt::format("{:.{}f} ± {:.{}f}", i.mean, places, i.half, places);
}

// Scores as people know them: a loss is stored negatively.
Interval shown(const Finding& f, const ArmScores& row) {
  Interval i = row.exact ? Interval{row.scores[0], 0, 1} : t_interval(row.known());
  if (less_is_better(f)) i.mean = -i.mean;
  return i;
}

// "0.94 ± 0.02", and of how many seeds there is none.
std::string score(const Finding& f, const ArmScores& row) {
  const size_t known = row.known().size(), missing = row.scores.size() - known;
  const std::string value = known > 0 ? with_interval(shown(f, row)) : "none";
  if (row.failure.empty()) return value;
  return fmt::format("{}; {} of {} seeds: {}", value, missing, row.scores.size(), row.failure);
}

Table arms(const Finding& f) {
  Table table{{"arm", f.score, "seeds", "learning rate", "parameters", "state", "seconds"}, {}};
  for (const ArmScores& row : f.rows) {
    table.rows.push_back(
        {row.arm,
         score(f, row),
         std::to_string(row.known().size()),
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

// Verdicts at a glance, with the expectations that were not met.
Table summary(const Reproduction& r) {
  Table table{{"claim", "scale", "verdict", "expected but not found"}, {}};
  for (const Finding& f : r.findings) {
    std::vector<std::string> missed;
    for (const Judgement& j : f.judgements) {
      if (j.verdict == f.verdict && j.verdict != Verdict::holds) missed.push_back(j.text);
    }
    table.rows.push_back(
        {f.claim,
         f.scale,
         std::string(words(f.verdict)),
         missed.empty() ? "-" : fmt::format("{}", fmt::join(missed, "; "))}
    );
  }
  return table;
}

std::string heading(const Reproduction& r) {
  return fmt::format("{} (arXiv:{})", r.paper->title, r.paper->arxiv);
}

constexpr const char* kReading =
    "Intervals are 95 % over seeds. Of two arms the difference by paired seeds is measured, "
    "positive where the first is better: a higher accuracy, a lower loss. A claim holds when all "
    "that is expected of it does; \"not shown\" means that an interval covers both sides.";

bool one_unit(const Finding& f) { return f.score != "value"; }

Bars bars(const Finding& f) {
  Bars picture{
      fmt::format("{}, scale {}: {}", f.claim, f.scale, f.score),
      {fmt::format(
          "{}, {}", f.score, better_words(less_is_better(f) ? Better::lower : Better::higher)
      )}};
  for (const ArmScores& row : f.rows) {
    if (row.known().empty()) continue;
    const Interval i = shown(f, row);
    const bool share = f.score.find("accuracy") != std::string::npos;  // between 0 and 1
    const double low = share && i.low() < 0 ? 0 : i.low();
    const double high = share && i.high() > 1 ? 1 : i.high();
    picture.bars.push_back({row.arm, i.mean, low, high, "", listed_colour(row.arm)});
  }
  return picture;
}

Tone tone_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds: return Tone::good;
    case Verdict::not_shown: return Tone::open;
    case Verdict::does_not_hold: return Tone::bad;
  }
  return Tone::plain;
}

// Of a cell that is a verdict in words.
Tone tone_of(const std::string& text) {
  for (const Verdict v : {Verdict::holds, Verdict::not_shown, Verdict::does_not_hold}) {
    if (text == words(v)) return tone_of(v);
  }
  return Tone::plain;
}

SortTable cells(const Table& table) {
  SortTable sorted;
  for (const std::string& name : table.head) sorted.head.emplace_back(name);
  for (const auto& row : table.rows) {
    sorted.rows.emplace_back();
    for (const std::string& text : row)
      sorted.rows.back().push_back({.text = text, .tone = tone_of(text)});
  }
  return sorted;
}

// Those in which every cell is "-".
void drop_empty_columns(SortTable& table) {
  for (size_t c = table.head.size(); c-- > 0;) {
    const bool empty = !table.rows.empty() &&
                       std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
                         return row[c].text == "-";
                       });
    if (!empty) continue;
    table.head.erase(table.head.begin() + ptrdiff_t(c));
    for (auto& row : table.rows) row.erase(row.begin() + ptrdiff_t(c));
  }
}

// Sorts by the numbers themselves: 5.5 KiB is less than 1 MiB.
SortTable arm_cells(const Finding& f) {
  SortTable sorted = cells(arms(f));
  if (one_unit(f)) sorted.head[1].better = less_is_better(f) ? Better::lower : Better::higher;
  for (size_t i = 0; i < f.rows.size(); ++i) {
    const ArmScores& row = f.rows[i];
    const double mean = row.known().empty() ? NAN : shown(f, row).mean;
    const double numbers[] = {
        mean, double(row.known().size()), row.lr, row.parameters, row.state_bytes, row.seconds};
    for (size_t n = 0; n < std::size(numbers); ++n) sorted.rows[i][n + 1].number = numbers[n];
    sorted.keys.push_back(row.arm);
  }
  drop_empty_columns(sorted);
  return sorted;
}

// A picture has the arms already: their table opens on a click.
std::string numbers(const Finding& f) {
  const std::string table = sortable(arm_cells(f)), judged = sortable(cells(expectations(f)));
  if (!one_unit(f)) return table + judged;
  return figure(bars(f)) + judged + folded("Every arm", table);
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
  return all + "\n" + summary(r).text();
}

std::string markdown(const Reproduction& r) {
  std::string all = fmt::format(
      "# {}\n\nWritten by `horner reproduce {}`. {}\n\n{}",
      heading(r),
      r.paper->name,
      kReading,
      summary(r).markdown()
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
  std::map<Verdict, size_t> count;
  page.sections.push_back({"Claims", paragraph(kReading) + sortable(cells(summary(r)))});
  for (const Finding& f : r.findings) {
    ++count[f.verdict];
    page.sections.push_back(
        {title(f),
         paragraph("The paper: " + f.says + ".") +
             paragraph(fmt::format("Here: {}. {}.", f.setting, where(f))) + numbers(f)}
    );
  }
  page.verdict = fmt::format(
      "Of {} claims {} hold, {} do not, {} are not shown.",
      r.findings.size(),
      count[Verdict::holds],
      count[Verdict::does_not_hold],
      count[Verdict::not_shown]
  );
  page.tone = count[Verdict::does_not_hold] > 0 ? Tone::bad
              : count[Verdict::not_shown] > 0   ? Tone::open
                                                : Tone::good;
  page.origin = {{"command", command}};
  return html(page);
}

}  // namespace horner
