#include "report/compare_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/compare_charts.h"
#include "report/compare_sections.h"
#include "report/compare_table.h"
#include "report/task_example.h"

namespace horner {
namespace {

// One line about the task, its length and what a rule that learns nothing scores.
std::string task_text(const CompareResult& r) {
  const std::string name = r.options.task.substr(0, r.options.task.find(':'));
  for (const TaskType& type : tasks()) {
    if (type.name != name) continue;
    std::string text = fmt::format("{}: {}.", name, type.about);
    if (text[text.size() - 2] == '?') text.pop_back();
    if (type.paper != "own") text += fmt::format(" From arXiv:{}.", type.paper);
    if (trained_length(r) > 0) text += fmt::format(" Examples of {} tokens.", trained_length(r));
    text += fmt::format(" The score is {}; {}.", r.metric, better_words(better_of(r)));
    const std::string rules = baselines_text(r);
    return rules.empty() ? text : text + " " + rules;
  }
  return "";
}

// Whether the reference beats every baseline; if not, nothing is shown about the others.
bool reference_learnt(const CompareResult& r) {
  for (const CompareRow& row : r.rows) {
    if (row.mixer != r.reference) continue;
    for (const Baseline& b : r.baselines) {
      if (!(r.smaller ? row.score.mean < b.score : row.score.mean > b.score)) return false;
    }
  }
  return true;
}

// Good: something beats the reference. Open: a difference is not shown. Bad: all are worse.
Tone tone_of(const CompareResult& r) {
  if (r.differences.empty()) return r.reference.empty() ? Tone::bad : Tone::plain;
  bool better = false, open = false;
  for (const Difference& d : r.differences) {
    const Tone tone = verdict_cell(r, d).tone;
    better = better || tone == Tone::good;
    open = open || tone == Tone::open;
  }
  if (!reference_learnt(r)) return Tone::open;
  return better ? Tone::good : open ? Tone::open : Tone::bad;
}

// A line for each group of mixers that the verdict names.
std::string in_lines(std::string verdict) {
  for (const char* group :
       {"Better than ", "No difference to ", "Worse than ", "But ", "The smallest state "}) {
    const size_t at = verdict.find(std::string(". ") + group);
    if (at != std::string::npos) verdict[at + 1] = '\n';
  }
  return verdict;
}

}  // namespace

Page compare_page(const CompareResult& r) {
  Page page{(r.of_single_runs() ? "horner report: " : "horner compare: ") + r.options.task};
  page.verdict = in_lines(r.verdict);
  page.tone = tone_of(r);
  page.warnings = r.warnings;
  page.origin = r.origin;
  if (const std::string text = task_text(r); !text.empty())
    page.sections.push_back({"The task", paragraph(text) + task_example(r.task)});
  page.sections.push_back(score_section(r));
  if (!r.differences.empty()) page.sections.push_back(difference_section(r));
  page.sections.push_back(runs_section(r));
  page.sections.push_back(slices_section(r));
  if (has_points(length_chart(r))) page.sections.push_back(lengths_section(r));
  page.sections.push_back(cost_section(r));
  if (!r.maps.empty()) page.sections.push_back(maps_section(r));
  return page;
}

std::vector<NamedPicture> compare_pictures(const CompareResult& r) {
  std::vector<NamedPicture> list = {
      {"score_state", svg(score_chart(r))}, {"curves", svg(curve_chart(r))}};
  if (!r.differences.empty()) list.push_back({"differences", svg(difference_bars(r))});
  if (const Chart decode = decode_chart(r); has_points(decode))
    list.push_back({"decode", svg(decode)});
  if (const Chart lengths = length_chart(r); has_points(lengths))
    list.push_back({"lengths", svg(lengths)});
  return list;
}

}  // namespace horner
