#include "tasks/text/naive_bayes.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace horner {
namespace {

// The runs of n bytes that occur, each once.
void features_of(std::string_view text, int n, std::vector<uint32_t>& features) {
  features.clear();
  uint32_t run = 0;
  const uint32_t mask = (uint32_t{1} << (8 * n)) - 1;
  for (size_t i = 0; i < text.size(); ++i) {
    run = (run << 8 | static_cast<uint8_t>(text[i])) & mask;
    if (i + 1 >= size_t(n)) features.push_back(run);
  }
  std::sort(features.begin(), features.end());
  features.erase(std::unique(features.begin(), features.end()), features.end());
}

}  // namespace

void LabelledTexts::add(std::string text, int64_t label) {
  texts.push_back(std::move(text));
  labels.push_back(label);
}

double naive_bayes_accuracy(
    const LabelledTexts& train, const LabelledTexts& test, int64_t classes, int n, size_t longest
) {
  HORNER_CHECK(n >= 1 && n <= 3, "[naive_bayes] n must be 1, 2 or 3, got {}", n);
  const auto C = static_cast<size_t>(classes);
  std::vector<int32_t> place(size_t{1} << (8 * n), -1);  // of a feature's counts
  std::vector<float> counts;                             // (features, C)
  std::vector<double> totals(C), score(C);
  std::vector<double> prior(C, 1);
  std::vector<uint32_t> features;
  const auto begin = [&](const std::string& text) {
    return std::string_view(text).substr(0, longest);
  };
  int32_t known = 0;
  for (size_t i = 0; i < train.texts.size(); ++i) {
    features_of(begin(train.texts[i]), n, features);
    const auto c = size_t(train.labels[i]);
    ++prior[c];
    totals[c] += double(features.size());
    for (const uint32_t feature : features) {
      if (place[feature] < 0) {
        place[feature] = known++;
        counts.resize(counts.size() + C);
      }
      ++counts[size_t(place[feature]) * C + c];
    }
  }
  for (float& count : counts) count = std::log(count + 1);
  int64_t right = 0;
  for (size_t i = 0; i < test.texts.size(); ++i) {
    features_of(begin(test.texts[i]), n, features);
    for (size_t c = 0; c < C; ++c) score[c] = std::log(prior[c]);
    for (const uint32_t feature : features) {
      if (place[feature] < 0) continue;  // says nothing about the class
      for (size_t c = 0; c < C; ++c) {
        score[c] += counts[size_t(place[feature]) * C + c] - std::log(totals[c] + known);
      }
    }
    right += std::max_element(score.begin(), score.end()) - score.begin() == test.labels[i];
  }
  return double(right) / double(std::max<size_t>(test.texts.size(), 1));
}

}  // namespace horner
