#include "report/claims.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "core/number.h"
#include "lab/reproduce/budget.h"
#include "report/arms.h"
#include "train/evaluate.h"

namespace horner {
namespace {

std::string number(double x) { return std::isfinite(x) ? fmt::format("{:.4g}", x) : "?"; }

bool decided(const Finding& f) {
  return f.verdict == Verdict::holds || f.verdict == Verdict::does_not_hold;
}

// "orders, norm"
std::string names_with(const Reproduction& r, Verdict verdict, size_t& count) {
  std::vector<std::string> names;
  for (const Claim& claim : r.paper->claims) {
    const Finding* f = main_finding(r, claim);
    if ((f == nullptr ? Verdict::untested : f->verdict) == verdict) names.push_back(claim.name);
  }
  count = names.size();
  return fmt::format("{}", fmt::join(names, ", "));
}

// The number that stands for a claim, or why there is none.
std::string our_number(const Claim& claim, const Finding& f) {
  if (f.verdict == Verdict::untested && f.reason.starts_with("withdrawn"))
    return "withdrawn: the setting was at fault; " +
           (claim.arms == nullptr ? "not yet run again" : first_look(claim));
  if (f.verdict == Verdict::untested) return f.reason;
  if (f.judgements.empty()) return "-";
  // The claim's own row, unless another one decided.
  auto row = f.judgements.begin() + ptrdiff_t(std::min(claim.headline, f.judgements.size() - 1));
  if (row->verdict != f.verdict) {
    const auto other =
        std::find_if(f.judgements.begin(), f.judgements.end(), [&](const Judgement& one) {
          return one.verdict == f.verdict;
        });
    if (other != f.judgements.end()) row = other;
  }
  const Judgement& j = *row;
  return fmt::format("{}: {}", j.text, measured(j));
}

}  // namespace

std::string scale_words(const Finding& f) {
  return f.scale == "gpu" ? "full scale" : "small scale";
}

bool less_is_better(const Finding& f) {
  return smaller_is_better(f.score.substr(f.score.find('/') + 1));
}

Better better_of(const Reproduction& r, const Finding& f) {
  if (f.score.find('/') != std::string::npos)  // of trained arms
    return less_is_better(f) ? Better::lower : Better::higher;
  const auto& claims = r.paper->claims;
  const bool lower = std::any_of(claims.begin(), claims.end(), [&](const Claim& claim) {
    return claim.name == f.claim && claim.lower_is_better;
  });
  return lower ? Better::lower : Better::neither;
}

std::string score_label(const Finding& f) {
  const size_t slash = f.score.find('/');
  if (slash == std::string::npos) return f.score;
  const std::string test = f.score.substr(0, slash), metric = f.score.substr(slash + 1);
  const std::string where =
      test.starts_with("test_T") ? fmt::format("a test of {} tokens", test.substr(6)) : "the test";
  return fmt::format("{} on {}{}", metric, where, metric == "loss" ? ", nats" : "");
}

std::string with_interval(const Interval& i) {
  if (!std::isfinite(i.half)) return number(i.mean) + " ± ?";
  if (i.half <= 1e-9 * std::abs(i.mean)) return number(i.mean);
  const int places = std::clamp(1 - int(std::floor(std::log10(i.half))), 0, 9);
  return fmt::format("{:.{}f} ± {:.{}f}", i.mean, places, i.half, places);
}

Interval shown(const Finding& f, const ArmScores& row) {
  Interval i = row.exact ? Interval{row.scores[0], 0, 1} : t_interval(row.known());
  if (less_is_better(f)) i.mean = -i.mean;
  return i;
}

std::string score(const Finding& f, const ArmScores& row) {
  const size_t known = row.known().size(), missing = row.scores.size() - known;
  const std::string value = known > 0 ? with_interval(shown(f, row)) : "none";
  if (row.failure.empty()) return value;
  return fmt::format("{}; {} of {} seeds: {}", value, missing, row.scores.size(), row.failure);
}

std::string measured(const Judgement& j) {
  const std::string value = !j.measured.empty() ? j.measured
                            : j.value.n > 0     ? with_interval(j.value)
                                                : "-";
  return j.reason.empty() ? value : (value == "-" ? "" : value + "; ") + j.reason;
}

const Finding* main_finding(const Reproduction& r, const Claim& claim) {
  const Finding* best = nullptr;
  for (const Finding& f : r.findings) {  // full scale first
    if (f.claim != claim.name) continue;
    if (best == nullptr || (decided(f) && !decided(*best))) best = &f;
  }
  return best;
}

std::string sentence(const Reproduction& r) {
  std::vector<std::string> parts;
  for (const Verdict verdict :
       {Verdict::holds,
        Verdict::does_not_hold,
        Verdict::not_shown,
        Verdict::measured,
        Verdict::untested}) {
    size_t count = 0;
    const std::string names = names_with(r, verdict, count);
    std::string word(words(verdict));
    word[0] = char(std::toupper(static_cast<unsigned char>(word[0])));
    if (count > 0) parts.push_back(fmt::format("{}: {} ({}).", word, count, names));
  }
  const size_t count = r.paper->claims.size();
  return fmt::format(
      "{} {}{}{}. {}",
      count,
      r.paper->survey ? (count == 1 ? "task" : "tasks") : (count == 1 ? "claim" : "claims"),
      r.paper->where.empty() ? "" : "; the tests use ",
      r.paper->where,
      fmt::join(parts, " ")
  );
}

std::string in_short(const Reproduction& r) {
  std::string text;
  for (const Verdict verdict : {Verdict::holds, Verdict::does_not_hold}) {
    std::vector<std::string> list;
    for (const Claim& claim : r.paper->claims) {
      const Finding* f = main_finding(r, claim);
      if (f != nullptr && f->verdict == verdict)
        list.push_back(fmt::format("- {}. {}.", claim.says, our_number(claim, *f)));
    }
    if (list.empty()) continue;
    const char* head = verdict == Verdict::holds ? "What holds here:" : "What does not hold here:";
    text += fmt::format("{}{}\n\n{}\n", text.empty() ? "" : "\n", head, fmt::join(list, "\n"));
  }
  return text;
}

Table claims_table(const std::vector<Reproduction>& all) {
  Table table{{"paper", "claim", "verdict", "ours", "the paper's"}, {}};
  for (const Reproduction& r : all) {
    for (const Claim& claim : r.paper->claims) {
      const Finding* f = main_finding(r, claim);
      const std::string link = fmt::format("[{0}]({0}.md)", r.paper->name);
      table.rows.push_back(
          {link,
           claim.name + ": " + claim.says,
           f == nullptr ? "untested" : std::string(words(f->verdict)),
           f == nullptr ? "not yet run" : our_number(claim, *f),
           claim.prints.empty() ? "no number" : claim.prints}
      );
    }
  }
  return table;
}

std::string claims_count(const std::vector<Reproduction>& all) {
  std::map<Verdict, size_t> count;
  size_t claims = 0;
  for (const Reproduction& r : all) {
    claims += r.paper->claims.size();
    for (const Claim& claim : r.paper->claims) {
      const Finding* f = main_finding(r, claim);
      ++count[f == nullptr ? Verdict::untested : f->verdict];
    }
  }
  std::vector<std::string> parts;
  for (const auto& [verdict, one, many] :
       {std::tuple{Verdict::holds, "holds", "hold"},
        {Verdict::does_not_hold, "does not hold", "do not hold"},
        {Verdict::not_shown, "is not shown", "are not shown"},
        {Verdict::measured, "is measured", "are measured"},
        {Verdict::untested, "is untested", "are untested"}}) {
    const size_t n = count[verdict];
    if (n > 0) parts.push_back(fmt::format("{} {}", n, n == 1 ? one : many));
  }
  return fmt::format(
      "{} claims of {} paper{}: {}.",
      claims,
      all.size(),
      all.size() == 1 ? "" : "s",
      fmt::join(parts, ", ")
  );
}

Table survey_table(const Reproduction& r) {
  Table table{{"mixer"}, {}};
  std::vector<std::string> arms;
  for (const Finding& f : r.findings) {
    table.head.push_back(f.claim + (f.scale == "gpu" ? "" : ", " + scale_words(f)));
    for (const ArmScores& row : f.rows) {
      if (std::find(arms.begin(), arms.end(), row.arm) == arms.end()) arms.push_back(row.arm);
    }
  }
  for (const std::string& arm : arms) {
    std::vector<std::string> cells{arm};
    for (const Finding& f : r.findings) {
      const auto row = std::find_if(f.rows.begin(), f.rows.end(), [&](const ArmScores& one) {
        return one.arm == arm;
      });
      cells.push_back(row == f.rows.end() ? "-" : score(f, *row));
    }
    table.rows.push_back(cells);
  }
  return table;
}

Chart state_picture(const Reproduction& r) {
  Chart chart{
      r.paper->title,
      {"state of one sequence, lower is better", true, 2, true},
      {"accuracy on the test, higher is better"}};
  if (!r.paper->against_state) return chart;
  for (const Finding& f : r.findings) {
    for (const ArmScores& row : f.rows) {
      if (row.known().empty() || row.state_bytes <= 0) continue;
      auto line = std::find_if(chart.series.begin(), chart.series.end(), [&](const Line& one) {
        return one.name == row.arm;
      });
      if (line == chart.series.end()) {
        chart.series.push_back({row.arm});
        line = chart.series.end() - 1;
        line->colour = arm_colour(r, f, row.arm);
      }
      const Interval i = shown(f, row);
      line->points.push_back({row.state_bytes, i.mean, i.low(), i.high()});
    }
  }
  for (Line& line : chart.series)
    std::sort(line.points.begin(), line.points.end(), [](const Point& a, const Point& b) {
      return a.x < b.x;
    });
  return chart;
}

}  // namespace horner
