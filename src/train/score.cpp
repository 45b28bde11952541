#include "train/score.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/check.h"
#include "train/evaluate.h"

namespace horner {
namespace {

constexpr std::string_view kAtLength = "test_T";

bool is_split(std::string_view text) {
  if (text == "valid" || text == "test") return true;
  if (!text.starts_with(kAtLength) || text.size() == kAtLength.size()) return false;
  text.remove_prefix(kAtLength.size());
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

double best_validation(const TrainResult& r) {
  double best = std::nan("");
  for (const TrainResult::Point& p : r.curve) {
    if (std::isnan(p.valid)) continue;
    const bool better = smaller_is_better(r.metric) ? p.valid < best : p.valid > best;
    if (std::isnan(best) || better) best = p.valid;
  }
  return best;
}

}  // namespace

ScoreName ScoreName::parse(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const std::string_view split = text.substr(0, slash);
  HORNER_CHECK(
      is_split(split) && slash + 1 < text.size(),
      "'{}' names no score: valid/METRIC, test/METRIC or test_T512/METRIC, as in test/accuracy",
      text
  );
  return {std::string(split), std::string(text.substr(slash + 1))};
}

ScoreName ScoreName::at_length(int64_t T, std::string metric) {
  return {fmt::format("{}{}", kAtLength, T), std::move(metric)};
}

double score_of(const TrainResult& r, const ScoreName& name) {
  if (name.split == "valid" && name.metric == "best") return best_validation(r);
  if (name.split == "valid") return r.valid.value(name.metric);
  if (name.split == "test") return r.test.value(name.metric);
  for (const auto& [T, scores] : r.lengths) {
    if (name.split == ScoreName::at_length(T, "").split) return scores.value(name.metric);
  }
  return std::nan("");
}

}  // namespace horner
