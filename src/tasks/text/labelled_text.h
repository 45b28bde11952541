// Classification of texts: id = token + 1, 0 pads; the first T tokens count.
#pragma once

#include <array>
#include <mutex>

#include "io/text_files.h"
#include "io/tokenizer.h"
#include "tasks/task.h"
#include "tasks/text/naive_bayes.h"

namespace horner {

using LabelledSplits = std::array<LabelledTexts, 3>;  // by Split

class LabelledTextTask : public Task {
 public:
  TaskShape shape() const override;
  int64_t size(Split split) const override;
  // Rows are as long as the longest of the batch, rounded up to 64.
  Batch batch(Split split, const std::vector<int64_t>& indices) const override;
  std::vector<Baseline> baselines() const override;  // majority, naive Bayes of bytes and trigrams
  Json sources() const override { return files_.json(); }
  std::vector<std::pair<std::string, std::string>> tokenizer_files() const override {
    return tokenizer_.files();
  }

 protected:
  LabelledTextTask(int64_t T, int64_t classes, Tokenizer tokenizer);
  LabelledSplits splits_;
  TextFiles files_;
  int64_t classes_;

 private:
  const int64_t T_;
  const Tokenizer tokenizer_;
  mutable std::once_flag counted_;
  mutable std::vector<Baseline> baselines_;
};

// Moves `count` examples of training, the first of a keyed order, to validation.
void hold_out(LabelledSplits& splits, int64_t count, uint64_t seed);

// `data`, or the folder `name` in HORNER_DATA; DataError that says what to do.
std::string data_folder(const std::string& data, const std::string& name, std::string_view task);

}  // namespace horner
