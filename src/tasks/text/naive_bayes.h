// Naive Bayes on which runs of n bytes occur in a text, at all:
//
//   class = argmax_c  ln P(c) + sum over features f that occur of  ln (n_fc + 1) / (sum_f n_fc + F)
//
// n_fc: training texts of class c with feature f; F: features that occur in training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace horner {

struct LabelledTexts {
  std::vector<std::string> texts;
  std::vector<int64_t> labels;
  void add(std::string text, int64_t label);
};

// Share of `test` that it gets right; n is 1, 2 or 3, texts are read up to `longest` bytes.
double naive_bayes_accuracy(
    const LabelledTexts& train, const LabelledTexts& test, int64_t classes, int n, size_t longest
);

}  // namespace horner
