#include "train/expect.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/check.h"
#include "core/nearest.h"

namespace horner {

Bound Bound::parse(std::string_view text) {
  for (const std::string_view relation : {" >= ", " <= ", " = "}) {
    const size_t at = text.rfind(relation);
    if (at == text.npos) continue;
    Bound b;
    b.relation = relation.substr(1, relation.size() - 2);
    std::istringstream rest{std::string(text.substr(at + relation.size()))};
    std::string plus_minus;
    rest >> b.value;
    if (b.relation == "=") rest >> plus_minus >> b.margin;
    const bool whole = !rest.fail() && (rest >> std::ws).eof();
    if (!whole || (b.relation == "=" && plus_minus != "+-")) continue;
    b.score = ScoreName::parse(text.substr(0, at));
    return b;
  }
  throw UsageError(
      "expect: '{}' must be SCORE >= x, SCORE <= x or SCORE = x +- y, as in test/accuracy >= 0.99",
      text
  );
}

bool Bound::holds(double x) const {
  if (relation == ">=") return x >= value;
  if (relation == "<=") return x <= value;
  return std::abs(x - value) <= margin;
}

void check_score(const ScoreName& score, const TrainOptions& options, const Task& task) {
  if (score.metric.find('/') == std::string::npos) {  // else of a slice
    std::vector<std::string> names = {"loss"};        // of evaluate.h
    if (task.shape().regression) {
      names.emplace_back("mse");
    } else {
      for (const char* name :
           {"accuracy",
            "sequence accuracy",
            "late accuracy",
            "first error",
            "free-running accuracy",
            "free-running sequence accuracy",
            "matthews",
            "bits per byte"})
        names.emplace_back(name);
    }
    if (score.split == "valid") names.emplace_back("best");
    const bool known = std::find(names.begin(), names.end(), score.metric) != names.end();
    HORNER_CHECK(known, "expect: {}", unknown("score", score.metric, names));
  }
  bool tested = score.split == "valid" || score.split == "test";
  for (const int64_t T : options.eval.lengths)
    tested = tested || score.split == ScoreName::at_length(T, "").split;
  HORNER_CHECK(tested, "expect: {}: eval.lengths does not hold this length", score.text());
}

std::vector<Answer> answers(const TrainResult& r) {
  std::vector<Answer> list;
  for (const std::string& text : r.options.expect) {
    const Bound b = Bound::parse(text);
    const double measured = score_of(r, b.score);
    list.push_back({text, measured, b.holds(measured)});
  }
  return list;
}

}  // namespace horner
