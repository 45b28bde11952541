#include "report/findings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "core/number.h"
#include "report/arms.h"
#include "report/bands.h"
#include "report/claims.h"
#include "report/html.h"
#include "report/rich_text.h"
#include "report/table.h"
#include "report/terminal.h"
#include "train/evaluate.h"

namespace horner {
namespace {

// In the order of the columns of `arm_cells`, with what only text has at the end.
Table arms(const Finding& f) {
  Table table{
      {"arm",
       f.score,
       "seeds",
       "learning rate",
       "parameters",
       "state",
       "seconds",
       "the paper's",
       "mixer"},
      {}};
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
         row.seconds > 0 ? fmt::format("{:.0f}", row.seconds) : "-",
         row.printed.empty() ? "-" : row.printed,
         row.mixer.empty() ? "-" : row.mixer}
    );
  }
  return table;
}

Table expectations(const Finding& f) {
  Table table{{"expected", "measured", "verdict"}, {}};
  for (const Judgement& j : f.judgements)
    table.rows.push_back({j.text, measured(j), std::string(words(j.verdict))});
  return table;
}

Table settings(const Finding& f) {
  Table table{{"setting", "the paper's", "ours"}, {}};
  for (const Setting& s : f.settings) table.rows.push_back({s.what, s.paper, s.ours});
  return table;
}

// Without the columns in which every cell is "-".
Table dense(Table table) {
  for (size_t c = table.head.size(); c-- > 0;) {
    const bool empty = !table.rows.empty() &&
                       std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
                         return row[c] == "-";
                       });
    if (!empty) continue;
    table.head.erase(table.head.begin() + ptrdiff_t(c));
    for (auto& row : table.rows) row.erase(row.begin() + ptrdiff_t(c));
  }
  return table;
}

// Verdicts at a glance, with the expectations that were not met.
Table summary(const Reproduction& r) {
  Table table{{"claim", "scale", "verdict", "why, or what was expected but not found"}, {}};
  for (const Finding& f : r.findings) {
    std::vector<std::string> missed;
    for (const Judgement& j : f.judgements) {
      if (j.verdict == f.verdict && j.verdict != Verdict::holds) missed.push_back(j.text);
    }
    std::string why = fmt::format("{}", fmt::join(missed, "; "));
    if (f.verdict == Verdict::untested) why = f.reason;
    if (!f.confirmed.empty()) why += (why.empty() ? "" : "; ") + f.confirmed;
    table.rows.push_back(
        {f.claim,
         f.scale == "gpu" ? "full" : "small",
         std::string(words(f.verdict)),
         why.empty() ? "-" : why}
    );
  }
  return table;
}

std::string heading(const Reproduction& r) {
  return fmt::format("{} (arXiv:{})", r.paper->title, r.paper->arxiv);
}

// What the page answers, then the answer.
std::string first_words(const Reproduction& r) {
  return (r.paper->survey ? "How do the mixers compare? " : "Do the paper's claims hold here? ") +
         sentence(r);
}

constexpr const char* kReading =
    "We subtract the second arm from the first, seed by seed. Positive: the first is better (a "
    "higher accuracy, a lower loss). A verdict is wrong with a probability of at most 5 %. When "
    "seeds were added until the claim was decided, the intervals are wider, so that this stays "
    "true. A claim holds when every expectation holds. \"Not shown\": an interval covers both "
    "sides. \"Untested\": there was no fair test yet; the reason stands beside it. Small scale "
    "(`--scale cpu`) is sized for a CPU, full scale (`--scale gpu`) for a GPU; the device that it "
    "ran "
    "on stands beside the numbers.";

bool one_unit(const Finding& f) { return f.score != "value"; }

Bars bars(const Reproduction& r, const Finding& f) {
  const std::string better = better_words(better_of(r, f));
  Bars picture{
      fmt::format("{}, {}: {}", f.claim, scale_words(f), score_label(f)),
      {score_label(f) + (better.empty() ? "; neither more nor less is better" : ", " + better)}};
  for (const ArmScores& row : f.rows) {
    if (row.known().empty()) continue;
    const Interval i = shown(f, row);
    if (f.score == "share" && i.mean > 1) continue;  // an order among shares: the table has it
    const bool share = f.score.find("accuracy") != std::string::npos || f.score == "share";
    const double low = share && i.low() < 0 ? 0 : i.low();
    const double high = share && i.mean <= 1 && i.high() > 1 ? 1 : i.high();
    picture.bars.push_back({row.arm, i.mean, low, high, "", arm_colour(r, f, row.arm)});
  }
  return picture;
}

Tone tone_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds: return Tone::good;
    case Verdict::not_shown: return Tone::open;
    case Verdict::untested:
    case Verdict::measured: return Tone::plain;
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

// Sorts by the numbers themselves: 5.5 KiB is less than 1 MiB.
SortTable arm_cells(const Reproduction& r, const Finding& f) {
  SortTable sorted = cells(arms(f));
  if (one_unit(f)) sorted.head[1] = {score_label(f), better_of(r, f)};
  sorted.head[5].better = Better::lower;  // state
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

// Its expectations; where two arms are compared, with the sign of what was measured.
SortTable judged_cells(const Finding& f) {
  SortTable table = cells(expectations(f));
  const bool compares =
      std::any_of(f.judgements.begin(), f.judgements.end(), [](const Judgement& j) {
        return j.text.find(" better than ") != j.text.npos ||
               j.text.find(" worse than ") != j.text.npos;
      });
  if (compares) table.caption = "A difference above 0: the first arm is better.";
  return table;
}

// Whether the expectations name every row, so that their table has all numbers.
bool repeated(const Finding& f) {
  return std::all_of(f.rows.begin(), f.rows.end(), [&](const ArmScores& row) {
    return std::any_of(f.judgements.begin(), f.judgements.end(), [&](const Judgement& j) {
      return j.text.starts_with(row.arm + ": in [");
    });
  });
}

// Whether the same claim has numbers at full scale.
bool shown_larger(const Reproduction& r, const Finding& f) {
  return f.scale == "cpu" &&
         std::any_of(r.findings.begin(), r.findings.end(), [&](const Finding& other) {
           return other.claim == f.claim && other.scale == "gpu" && !other.rows.empty();
         });
}

constexpr const char* kBandColours =
    "Blue: the interval lies in the band. Red: outside of it. Grey: across an edge.";

// A picture has the arms already: their table opens on a click, and so do the settings.
std::string numbers(const Reproduction& r, const Finding& f) {
  const std::string set =
      f.settings.empty() ? ""
                         : folded("The paper's setting and ours", sortable(cells(settings(f))));
  const std::string all = set + arm_equations(r, f);
  if (f.rows.empty()) return all;
  const std::string table = sortable(arm_cells(r, f)),
                    judged = f.judgements.empty() ? "" : sortable(judged_cells(f));
  if (std::vector<Bars> bands = band_pictures(f); !bands.empty()) {
    // One setting, the one with most numbers, is shown, unless a larger scale shows it; the others open on a click.
    std::stable_sort(bands.begin(), bands.end(), [](const Bars& a, const Bars& b) {
      return a.bars.size() > b.bars.size();
    });
    const std::string first = figure(bands[0], kBandColours);
    std::string rest = shown_larger(r, f) ? first : "";
    for (size_t i = 1; i < bands.size(); ++i) rest += figure(bands[i], kBandColours);
    return (shown_larger(r, f) ? "" : first) + folded("Every number", rest + judged) + all;
  }
  if (!one_unit(f))
    return (repeated(f)      ? folded("Every number", judged)
            : judged.empty() ? table
                             : judged + folded("Every number", table)) +
           all;
  return figure(bars(r, f)) + judged + folded("Every arm", table) + all;
}

std::string title(const Finding& f) {
  return fmt::format("{}, {}: {}", f.claim, scale_words(f), words(f.verdict));
}

// `quote`: around the command.
std::string where(const Finding& f, const char* quote) {
  return fmt::format(
      "{}{:.0f} s of training and measuring on {}, commit {}, {}{}{}",
      f.looks > 1 ? fmt::format("{} looks. ", f.looks) : "",
      f.seconds,
      f.device,
      f.commit,
      f.date,
      f.command.empty() ? "" : fmt::format(": {0}{1}{0}", quote, f.command),
      f.data.empty() ? "" : "; data: " + f.data
  );
}

// Decided claims first, then what has numbers, then the rest.
int rank(const Finding& f) { return f.rows.empty() ? 2 : f.verdict == Verdict::untested ? 1 : 0; }

// Where a claim has a verdict, those without one step back: they are in no picture, and open on a click.
bool any_decided(const Reproduction& r) {
  return std::any_of(r.findings.begin(), r.findings.end(), [](const Finding& f) {
    return rank(f) == 0;
  });
}

// What the paper says, and what is done here. Why a claim is not shown stands in the table of its expectations.
std::string claim(const Reproduction& r, const Finding& f) {
  const std::string who = f.says.starts_with("Not the paper") ? ""
                          : r.paper->survey                   ? "The task: "
                                                              : "The paper: ";
  std::string text = paragraph(who + f.says + ".") + paragraph("Here: " + f.setting + ".");
  if (f.reason.empty() || (f.verdict == Verdict::not_shown && !f.judgements.empty())) return text;
  std::string reason = fmt::format("{}: {}.", words(f.verdict), f.reason);
  reason[0] = char(std::toupper(static_cast<unsigned char>(reason[0])));
  return text + paragraph(reason);
}

// Its numbers and where they come from. Those that decide nothing open on a click.
std::string evidence(const Reproduction& r, const Finding& f) {
  if (f.rows.empty()) return numbers(r, f);
  const std::string all = numbers(r, f) + "<p class=\"where\">" + rich(where(f, "`")) + ".</p>\n";
  return f.verdict == Verdict::untested ? folded("Its numbers, which decide nothing", all) : all;
}

}  // namespace

std::string text(const Reproduction& r, size_t width) {
  const auto line = [&](size_t indent, const std::string& words) {
    return wrapped(std::string(indent, ' ') + words, width, 4) + "\n";
  };
  std::string all = line(0, heading(r));
  for (const Finding& f : r.findings) {
    all += "\n" + line(0, title(f) + ".") + line(2, "says: " + f.says + ".") +
           line(2, "here: " + f.setting + ".");
    if (!f.reason.empty()) all += line(2, fmt::format("{}: {}.", words(f.verdict), f.reason));
    all += "\n" + dense(arms(f)).text(width) + "\n";
    if (!f.judgements.empty()) all += expectations(f).text(width);
  }
  return all + "\n" + summary(r).text(width);
}

std::string markdown(const Reproduction& r) {
  std::string all = fmt::format(
      "# {}\n\n{}\n\n{}Written by `./horner reproduce {} --out DIR`. {}\n\n{}{}",
      heading(r),
      first_words(r),
      in_short(r).empty() ? "" : in_short(r) + "\n",
      r.paper->name,
      r.paper->survey ? "" : kReading,
      r.paper->survey && !survey_table(r).rows.empty() ? survey_table(r).markdown() + "\n" : "",
      summary(r).markdown()
  );
  if (!picture(r).empty())
    all += fmt::format("\n![every arm with its interval]({}.svg)\n", r.paper->name);
  for (const Finding& f : r.findings) {
    all += fmt::format(
        "\n## {}\n\n> {}.\n\n{}{}{}Here: {}.{}\n\n{}\n{}",
        title(f),
        f.says,
        f.reason.empty() ? "" : fmt::format("{}: {}.\n\n", words(f.verdict), f.reason),
        f.settings.empty() ? "" : settings(f).markdown() + "\n",
        f.earlier ? "The table is the setting of the next run, the scores are of an earlier one. "
                  : "",
        f.setting,
        f.rows.empty() ? "" : fmt::format(" {}.", where(f, "`")),
        f.rows.empty() ? "" : dense(arms(f)).markdown(),
        f.judgements.empty() ? "" : expectations(f).markdown()
    );
  }
  return all;
}

std::string picture(const Reproduction& r) {
  std::vector<std::string> all;
  const bool decided = any_decided(r);
  for (const Finding& f : r.findings) {
    if (decided && rank(f) > 0) continue;
    if (one_unit(f) && !bars(r, f).bars.empty()) all.push_back(svg(bars(r, f)));
  }
  if (const Chart states = state_picture(r); !states.series.empty()) all = {svg(states)};
  return all.empty() ? "" : svg_file(stacked(heading(r), all));
}

std::string page(const Reproduction& r, const std::string& command) {
  Page page{heading(r)};
  std::map<Verdict, size_t> count;
  if (const Table mixers = survey_table(r); r.paper->survey && !mixers.rows.empty())
    page.sections.push_back({"Every mixer", sortable(cells(mixers))});
  std::vector<const Finding*> findings;  // those with numbers first
  for (const Finding& f : r.findings) findings.push_back(&f);
  std::stable_sort(findings.begin(), findings.end(), [](const Finding* a, const Finding* b) {
    return rank(*a) < rank(*b);
  });
  std::set<std::string> tasks;  // each is drawn once
  std::string untested;
  size_t untested_count = 0;
  for (const Finding* f : findings) {
    ++count[f->verdict];
    const std::string task = arm_task(r, *f),
                      told =
                          claim(r, *f) + (tasks.insert(task).second ? task : "") + evidence(r, *f);
    if (any_decided(r) && rank(*f) > 0) {
      untested += fmt::format("<h3>{}</h3>\n{}", title(*f), told);
      ++untested_count;
    } else {
      page.sections.push_back({title(*f), told});
    }
  }
  if (untested_count > 0)
    page.sections.push_back(
        {"Untested",
         folded(fmt::format("{} without a fair test yet, and why", untested_count), untested)}
    );
  page.sections.push_back(
      {"Claims",
       (r.paper->survey ? "" : paragraph(kReading)) +
           folded(
               fmt::format("The verdict of each claim ({})", r.findings.size()),
               sortable(cells(summary(r)))
           )}
  );
  page.verdict = first_words(r);
  page.tone = count[Verdict::does_not_hold] > 0                          ? Tone::bad
              : count[Verdict::not_shown] + count[Verdict::untested] > 0 ? Tone::open
                                                                         : Tone::good;
  page.origin = {{"command", command}};
  return html(page);
}

}  // namespace horner
