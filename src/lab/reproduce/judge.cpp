// Whether scores show what was expected.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "lab/reproduce/reproduce.h"

namespace horner {
namespace {

const ArmScores& row_of(const std::vector<ArmScores>& rows, const std::string& arm) {
  for (const ArmScores& row : rows) {
    if (row.arm == arm) return row;
  }
  throw UsageError("[reproduce] an expectation names the arm {}, which there is not", arm);
}

}  // namespace

std::string_view words(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds: return "holds";
    case Verdict::does_not_hold: return "does not hold";
    case Verdict::not_shown: break;
  }
  return "not shown";
}

std::vector<double> ArmScores::known() const {
  std::vector<double> list;
  std::copy_if(scores.begin(), scores.end(), std::back_inserter(list), [](double x) {
    return std::isfinite(x);
  });
  return list;
}

std::string Expectation::text(bool computed) const {
  switch (kind) {
    case near: return fmt::format("{} within {:g} of {}", a, margin, b);
    case reaches: return fmt::format("{} above {:g}", a, margin);
    case under: return fmt::format("{} below {:g}", a, margin);
    case above: break;
  }
  if (margin < 0)
    return fmt::format("{} at most {:g} {} than {}", a, -margin, computed ? "smaller" : "worse", b);
  const std::string by = margin > 0 ? fmt::format(" by {:g}", margin) : "";
  return fmt::format("{} {} than {}{}", a, computed ? "larger" : "better", b, by);
}

Judgement judge(const Expectation& e, const std::vector<ArmScores>& rows, bool computed) {
  const ArmScores& a = row_of(rows, e.a);
  const bool two = e.kind == Expectation::above || e.kind == Expectation::near;
  ArmScores value = a;
  if (two) {
    const ArmScores& b = row_of(rows, e.b);
    value.scores.resize(std::min(a.scores.size(), b.scores.size()));
    for (size_t i = 0; i < value.scores.size(); ++i) value.scores[i] -= b.scores[i];  // by seed
  }
  const std::vector<double> scores = value.known();
  Judgement judged;
  judged.text = e.text(computed);
  judged.verdict = Verdict::not_shown;
  if (scores.empty()) return judged;
  judged.value = a.exact ? Interval{scores[0], 0, 1} : t_interval(scores);
  const double low = judged.value.low(), high = judged.value.high(), m = e.margin;
  bool yes = false, no = false;
  switch (e.kind) {
    case Expectation::above:
    case Expectation::reaches:
      yes = low > m;
      no = high < m;
      break;
    case Expectation::under:
      yes = high < m;
      no = low > m;
      break;
    case Expectation::near:
      yes = low > -m && high < m;
      no = low > m || high < -m;
      break;
  }
  judged.verdict = yes ? Verdict::holds : (no ? Verdict::does_not_hold : Verdict::not_shown);
  return judged;
}

Verdict overall(const std::vector<Judgement>& judgements) {
  Verdict verdict = judgements.empty() ? Verdict::not_shown : Verdict::holds;
  for (const Judgement& judged : judgements) {
    if (judged.verdict == Verdict::does_not_hold) return Verdict::does_not_hold;
    if (judged.verdict == Verdict::not_shown) verdict = Verdict::not_shown;
  }
  return verdict;
}

}  // namespace horner
