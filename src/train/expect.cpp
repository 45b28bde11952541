#include "train/expect.h"

#include <cmath>
#include <sstream>

#include "core/check.h"
#include "train/evaluate.h"

namespace horner {
namespace {

struct Expectation {
  std::string score, relation;
  double value = 0, margin = 0;

  bool holds(double x) const {
    if (relation == ">=") return x >= value;
    if (relation == "<=") return x <= value;
    return std::abs(x - value) <= margin;
  }
};

Expectation parse(const std::string& text) {
  for (const std::string relation : {" >= ", " <= ", " = "}) {
    const size_t at = text.rfind(relation);
    if (at == text.npos) continue;
    Expectation e{text.substr(0, at), relation.substr(1, relation.size() - 2)};
    std::istringstream rest(text.substr(at + relation.size()));
    std::string plus_minus;
    rest >> e.value;
    if (e.relation == "=") rest >> plus_minus >> e.margin;
    if (!rest.fail() && (rest >> std::ws).eof() && e.score.find('/') != e.score.npos &&
        (e.relation != "=" || plus_minus == "+-"))
      return e;
  }
  throw UsageError(
      "expect: '{}' must be SCORE >= x, SCORE <= x or SCORE = x +- y, as in test/accuracy >= 0.99",
      text
  );
}

double best(const TrainResult& r) {
  double best = std::nan("");
  for (const TrainResult::Point& p : r.curve) {
    if (std::isnan(p.valid)) continue;
    const bool better = smaller_is_better(r.metric) ? p.valid < best : p.valid > best;
    if (std::isnan(best) || better) best = p.valid;
  }
  return best;
}

double score(const TrainResult& r, const std::string& name) {
  if (name == "valid/best") return best(r);
  const size_t slash = name.find('/');
  const std::string of = name.substr(0, slash), what = name.substr(slash + 1);
  const auto find = [&](const Scores& scores) {
    const auto found = scores.values.find(what);
    return found == scores.values.end() ? std::nan("") : found->second;
  };
  if (of == "test") return find(r.test);
  if (of == "valid") return find(r.valid);
  for (const auto& [T, scores] : r.lengths) {
    if (of == fmt::format("test_T{}", T)) return find(scores);
  }
  return std::nan("");
}

}  // namespace

void check_expectation(const std::string& text) { parse(text); }

std::vector<Answer> answers(const TrainResult& r) {
  std::vector<Answer> list;
  for (const std::string& text : r.options.expect) {
    const Expectation e = parse(text);
    const double measured = score(r, e.score);
    list.push_back({text, measured, e.holds(measured)});
  }
  return list;
}

}  // namespace horner
