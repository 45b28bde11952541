#include "report/compare_page.h"

#include "report/compare_charts.h"
#include "report/compare_sections.h"

namespace horner {
namespace {

// Good: something keeps up with the reference or beats it. Open: nothing can be said.
Tone tone_of(const CompareResult& r) {
  if (r.differences.empty()) return r.reference.empty() ? Tone::bad : Tone::plain;
  bool better = false, open = false;
  for (const Difference& d : r.differences) {
    const Tone tone = verdict_cell(r, d).tone;
    better = better || tone == Tone::good;
    open = open || tone == Tone::open;
  }
  return better ? Tone::good : open ? Tone::open : Tone::bad;
}

}  // namespace

Page compare_page(const CompareResult& r) {
  Page page{"horner compare: " + r.options.task};
  page.verdict = r.verdict;
  page.tone = tone_of(r);
  page.warnings = r.warnings;
  page.origin = r.origin;
  page.sections = {score_section(r)};
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
